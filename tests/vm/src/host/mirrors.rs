//! Finds the mirror that this system is set up with, by reading apt's sources.
//!
//! Must never prefer a mirror of its own to that of the system.

use std::fs;
use std::path::Path;

use super::arch::Arch;

const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// Whether the keys of Debian's archive are here.
pub fn has_keys() -> bool {
    let trusted = |e: fs::DirEntry| {
        e.file_name()
            .to_str()
            .is_some_and(|n| n.starts_with("debian-archive-"))
    };
    Path::new(KEYRING).exists()
        || fs::read_dir("/etc/apt/trusted.gpg.d").is_ok_and(|d| d.flatten().any(trusted))
}

/// Where packages come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mirrors {
    /// Base of the archive.
    pub main: String,
    /// Base of the security archive.
    pub security: String,
}

/// A source of packages as it is written down.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Source {
    uri: String,
    suites: Vec<String>,
    components: Vec<String>,
}

impl Mirrors {
    /// Those of this system; Debian's own names where the system has none for Debian.
    pub fn of_system() -> Self {
        let mut sources = Vec::new();
        let mut files = vec![Path::new("/etc/apt/sources.list").to_owned()];
        if let Ok(entries) = fs::read_dir("/etc/apt/sources.list.d") {
            files.extend(entries.flatten().map(|e| e.path()));
        }
        files.sort();
        for file in files {
            let Ok(text) = fs::read_to_string(&file) else {
                continue;
            };
            match file.extension().and_then(|e| e.to_str()) {
                Some("list") => sources.extend(one_line(&text)),
                Some("sources") => sources.extend(paragraphs(&text)),
                _ => {}
            }
        }
        Self::among(&sources)
    }

    fn among(sources: &[Source]) -> Self {
        let find = |security: bool| {
            sources
                .iter()
                .filter(|s| s.components.iter().any(|c| c == "main"))
                .find(|s| {
                    s.suites
                        .iter()
                        .any(|n| is_debian(n) && is_security(n) == security)
                })
                .map(|s| s.uri.trim_end_matches('/').to_owned())
        };
        let main = find(false).unwrap_or_else(|| "http://deb.debian.org/debian".to_owned());
        // A mirror host that has the archive under /debian has the other beside it.
        let security = find(true).unwrap_or_else(|| match main.strip_suffix("/debian") {
            Some(host) => format!("{host}/debian-security"),
            None => "http://deb.debian.org/debian-security".to_owned(),
        });
        Self { main, security }
    }

    /// The lines of a `sources.list` for these suites.
    pub fn sources_list(&self, suites: &[&str], arch: Arch) -> String {
        let arch = arch.debian();
        let keyring = KEYRING;
        let signed = if Path::new(keyring).exists() {
            format!(" signed-by={keyring}")
        } else {
            String::new()
        };
        suites
            .iter()
            .map(|suite| {
                let base = if is_security(suite) {
                    &self.security
                } else {
                    &self.main
                };
                format!("deb [arch={arch} target=Packages{signed}] {base} {suite} main\n")
            })
            .collect()
    }
}

fn is_security(suite: &str) -> bool {
    suite.ends_with("-security") || suite.ends_with("/updates")
}

/// Whether a suite is one of Debian's, and not a name that only starts like one.
fn is_debian(suite: &str) -> bool {
    const NAMES: [&str; 11] = [
        "bullseye",
        "bookworm",
        "trixie",
        "forky",
        "sid",
        "unstable",
        "testing",
        "stable",
        "oldstable",
        "oldoldstable",
        "duke",
    ];
    const ENDS: [&str; 6] = [
        "",
        "-updates",
        "-security",
        "/updates",
        "-backports",
        "-proposed-updates",
    ];
    NAMES
        .iter()
        .any(|n| suite.strip_prefix(n).is_some_and(|end| ENDS.contains(&end)))
}

/// `deb [options] URI SUITE COMPONENT…`
fn one_line(text: &str) -> Vec<Source> {
    let mut all = Vec::new();
    for line in text
        .lines()
        .map(|l| l.split('#').next().unwrap_or_default().trim())
    {
        let Some(rest) = line
            .strip_prefix("deb ")
            .or_else(|| line.strip_prefix("deb\t"))
        else {
            continue;
        };
        let rest = rest.trim();
        let rest = match rest.strip_prefix('[') {
            Some(r) => r.split_once(']').map_or("", |(_, after)| after),
            None => rest,
        };
        let mut words = rest.split_whitespace().map(str::to_owned);
        if let (Some(uri), Some(suite)) = (words.next(), words.next()) {
            all.push(Source {
                uri,
                suites: vec![suite],
                components: words.collect(),
            });
        }
    }
    all
}

/// Fields `Types`, `URIs`, `Suites`, `Components`, one source a paragraph.
fn paragraphs(text: &str) -> Vec<Source> {
    let mut all = Vec::new();
    for paragraph in text.replace("\r\n", "\n").split("\n\n") {
        let mut fields: Vec<(String, Vec<String>)> = Vec::new();
        for line in paragraph.lines().filter(|l| !l.starts_with('#')) {
            let words = |t: &str| t.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
            if line.starts_with([' ', '\t']) {
                if let Some((_, value)) = fields.last_mut() {
                    value.extend(words(line));
                }
            } else if let Some((name, value)) = line.split_once(':') {
                fields.push((name.to_ascii_lowercase(), words(value)));
            }
        }
        let get = |name: &str| {
            fields
                .iter()
                .find(|(n, _)| n == name)
                .map(|(_, v)| v.clone())
                .unwrap_or_default()
        };
        let off = get("enabled")
            .first()
            .is_some_and(|v| v.eq_ignore_ascii_case("no"));
        if off || !get("types").iter().any(|t| t == "deb") {
            continue;
        }
        for uri in get("uris") {
            all.push(Source {
                uri,
                suites: get("suites"),
                components: get("components"),
            });
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms() {
        let a = one_line(
            "# deb http://no/debian bookworm main\n\
             deb [arch=amd64 signed-by=/k] http://m.example/debian/ bookworm main contrib # x\n\
             deb http://m.example/sec bookworm-security main\n\
             deb-src http://m.example/debian bookworm main\ndeb\n",
        );
        assert_eq!(a.len(), 2);
        let m = Mirrors::among(&a);
        assert_eq!(m.main, "http://m.example/debian");
        assert_eq!(m.security, "http://m.example/sec");

        let b = paragraphs(
            "Types: deb\n# old\nURIs: http://m.example/debian\nSuites: trixie\n trixie-updates\n\
             Components: main\n\nTypes: deb\nEnabled: no\nURIs: http://x/y\nSuites: sid\n\
             Components: main\n\nnonsense\n",
        );
        assert_eq!(b.len(), 1);
        let m = Mirrors::among(&b);
        assert_eq!(m.main, "http://m.example/debian");
        assert_eq!(m.security, "http://m.example/debian-security");
    }

    #[test]
    fn others_are_not_taken_for_debian() {
        let other = one_line(
            "deb https://packages.example/apt sdk-bookworm main\n\
             deb https://d.example/linux/debian bookworm stable\n\
             deb http://p.example/apt bookworm-pgdg main\n\
             deb http://u.example/ubuntu noble main\n",
        );
        assert_eq!(Mirrors::among(&other).main, "http://deb.debian.org/debian");
    }

    #[test]
    fn lists() {
        let m = Mirrors {
            main: "http://a/debian".into(),
            security: "http://a/s".into(),
        };
        let text = m.sources_list(&["bookworm", "bookworm-security"], Arch::Amd64);
        assert!(text.contains(" http://a/debian bookworm main\n"));
        assert!(text.contains(" http://a/s bookworm-security main\n"));
    }
}

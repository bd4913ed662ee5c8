//! Reads a package index and chooses the kernel packages of a line.
//!
//! Ground truth: Debian's `Packages` format and its order of versions (deb-version(7)). The index
//! comes from outside: must never panic on it. Must never name a patch version of a kernel.

use std::cmp::Ordering;
use std::iter::Peekable;

use super::arch::Arch;

/// A package as the index has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Package {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Size of its file, in bytes.
    pub size: u64,
}

/// Reads an index; paragraphs without name or version are left out.
pub fn parse(index: &str) -> Vec<Package> {
    let mut all = Vec::new();
    let (mut name, mut version, mut size) = (None, None, 0);
    for line in index.lines().chain([""]) {
        if line.trim().is_empty() {
            if let (Some(name), Some(version)) = (name.take(), version.take()) {
                all.push(Package {
                    name,
                    version,
                    size,
                });
            }
            (name, version, size) = (None, None, 0);
        } else if let Some((field, value)) = line.split_once(':') {
            let value = value.trim();
            match field {
                "Package" => name = Some(value.to_owned()),
                "Version" => version = Some(value.to_owned()),
                "Size" => size = value.parse().unwrap_or(0),
                _ => {}
            }
        }
    }
    all
}

/// The newest kernel of a line (`6.12`, or `newest` for any): the packages that hold its image and
/// its modules.
pub fn kernel<'a>(all: &'a [Package], line: &str) -> Vec<&'a Package> {
    let (arch, line) = Arch::of_line(line);
    let newest = all
        .iter()
        .filter(|p| kernel_abi(&p.name, arch).is_some() && in_line(&p.version, line))
        .max_by(|a, b| compare(&a.version, &b.version));
    let Some(image) = newest else {
        return Vec::new();
    };
    let abi = kernel_abi(&image.name, arch).unwrap_or_default();
    let part = |kind: &str| {
        let name = format!("linux-{kind}-{abi}-{}", arch.debian());
        all.iter()
            .find(|p| p.name == name && p.version == image.version)
    };
    // Newer packaging splits the kernel; what is called the image is then empty.
    match (part("binary"), part("modules"), part("base")) {
        // The third says which modules are built in.
        (Some(binary), Some(modules), Some(base)) => vec![binary, modules, base],
        _ => vec![image],
    }
}

/// The newest package of exactly this name.
pub fn named<'a>(all: &'a [Package], name: &str) -> Option<&'a Package> {
    all.iter()
        .filter(|p| p.name == name)
        .max_by(|a, b| compare(&a.version, &b.version))
}

/// The packages that a simulated run of apt-get would install: lines `Inst NAME (VERSION …`.
pub fn simulated(said: &str, index: &[Package]) -> Vec<Package> {
    said.lines()
        .filter_map(|line| {
            let (name, rest) = line.strip_prefix("Inst ")?.split_once(" (")?;
            let version = rest.split([' ', ')']).next()?;
            let same = |p: &&Package| p.name == name && p.version == version;
            Some(Package {
                name: name.to_owned(),
                version: version.to_owned(),
                size: index.iter().find(same).map_or(0, |p| p.size),
            })
        })
        .collect()
}

/// The packages that a module for this kernel is built with: its own headers, those that all
/// flavours share, and the build's tools. `None` if the index has not all three.
pub fn kernel_headers<'a>(all: &'a [Package], release: &str) -> Option<[&'a Package; 3]> {
    let abi = [Arch::Amd64, Arch::Arm64]
        .iter()
        .find_map(|arch| release.strip_suffix(arch.debian())?.strip_suffix('-'))?;
    let own = named(all, &format!("linux-headers-{release}"))?;
    let common = named(all, &format!("linux-headers-{abi}-common"))?;
    // The tools of older lines are named after the line.
    let line = own
        .version
        .splitn(3, '.')
        .take(2)
        .collect::<Vec<_>>()
        .join(".");
    let tools = named(all, &format!("linux-kbuild-{abi}"))
        .or_else(|| named(all, &format!("linux-kbuild-{line}")))?;
    Some([own, common, tools])
}

/// `6.12.117+deb12` of `linux-image-6.12.117+deb12-amd64`; `None` for flavours and meta packages.
fn kernel_abi(name: &str, arch: Arch) -> Option<&str> {
    let abi = name
        .strip_prefix("linux-image-")?
        .strip_suffix(arch.debian())?
        .strip_suffix('-')?;
    let whole = abi.starts_with(|c: char| c.is_ascii_digit()) && abi.matches('.').count() >= 2;
    let flavour = abi.ends_with("-cloud") || abi.ends_with("-rt");
    (whole && !flavour).then_some(abi)
}

fn in_line(version: &str, line: &str) -> bool {
    line == "newest"
        || version
            .strip_prefix(line)
            .is_some_and(|rest| rest.starts_with('.'))
}

/// Compares two versions as Debian does.
pub fn compare(a: &str, b: &str) -> Ordering {
    let (epoch_a, rest_a) = a.split_once(':').unwrap_or(("0", a));
    let (epoch_b, rest_b) = b.split_once(':').unwrap_or(("0", b));
    let (up_a, rev_a) = rest_a.rsplit_once('-').unwrap_or((rest_a, "0"));
    let (up_b, rev_b) = rest_b.rsplit_once('-').unwrap_or((rest_b, "0"));
    compare_part(epoch_a, epoch_b)
        .then_with(|| compare_part(up_a, up_b))
        .then_with(|| compare_part(rev_a, rev_b))
}

/// Letters before everything else, `~` before the end.
fn weight(c: Option<u8>) -> u32 {
    match c {
        Some(b'~') => 0,
        None | Some(b'0'..=b'9') => 1,
        Some(c) if c.is_ascii_alphabetic() => 2 + u32::from(c),
        Some(c) => 300 + u32::from(c),
    }
}

fn number(from: &mut Peekable<impl Iterator<Item = u8>>) -> String {
    let mut digits = String::new();
    while let Some(d) = from.next_if(u8::is_ascii_digit) {
        if d != b'0' || !digits.is_empty() {
            digits.push(char::from(d));
        }
    }
    digits
}

fn compare_part(a: &str, b: &str) -> Ordering {
    let (mut a, mut b) = (a.bytes().peekable(), b.bytes().peekable());
    while a.peek().is_some() || b.peek().is_some() {
        loop {
            let (x, y) = (a.peek().copied(), b.peek().copied());
            let digit = |c: Option<u8>| c.is_none_or(|c| c.is_ascii_digit());
            if digit(x) && digit(y) {
                break;
            }
            match weight(x).cmp(&weight(y)) {
                Ordering::Equal => {}
                other => return other,
            }
            // Equal weights are equal characters, so neither is at its end here.
            a.next();
            b.next();
        }
        let (x, y) = (number(&mut a), number(&mut b));
        match x.len().cmp(&y.len()).then_with(|| x.cmp(&y)) {
            Ordering::Equal => {}
            other => return other,
        }
    }
    Ordering::Equal
}

#[cfg(test)]
mod tests {
    use super::*;

    const INDEX: &str = "\
Package: linux-image-6.12-amd64
Version: 6.12.117-1~deb12u1
Size: 1500

Package: linux-image-6.12.107+deb12-amd64
Version: 6.12.107-1~deb12u1
Size: 100

Package: linux-image-6.12.117+deb12-amd64
Version: 6.12.117-1~deb12u1
Depends: kmod,
 linux-base
Size: 107179464

Package: linux-image-6.12.117+deb12-cloud-amd64
Version: 6.12.117-1~deb12u1

Package: linux-image-6.12.118+deb12-amd64-unsigned
Version: 6.12.118-1~deb12u1

Package: linux-image-6.1.0-57-amd64
Version: 6.1.192-3

Package: linux-image-6.1.0-9-amd64
Version: 6.1.27-1

Package: linux-image-7.3.4+deb13-amd64
Version: 7.3.4-1~bpo13+1

Package: linux-binary-7.3.4+deb13-amd64
Version: 7.3.4-1~bpo13+1

Package: linux-base-7.3.4+deb13-amd64
Version: 7.3.4-1~bpo13+1

Package: linux-modules-7.3.4+deb13-amd64
Version: 7.3.4-1~bpo13+1

Package: linux-image-6.12.117+deb12-arm64
Version: 6.12.117-1~deb12u1

Package: linux-image-6.12.118+deb12-cloud-arm64
Version: 6.12.118-1~deb12u1

Package: busybox-static
Version: 1:1.35.0-4+deb12u1+b1
";

    fn names(line: &str) -> Vec<String> {
        kernel(&parse(INDEX), line)
            .into_iter()
            .map(|p| p.name.clone())
            .collect()
    }

    #[test]
    fn newest_of_each_line() {
        assert_eq!(names("6.12"), ["linux-image-6.12.117+deb12-amd64"]);
        assert_eq!(names("6.1"), ["linux-image-6.1.0-57-amd64"]);
        assert_eq!(
            names("newest"),
            ["binary", "modules", "base"].map(|k| format!("linux-{k}-7.3.4+deb13-amd64"))
        );
        assert_eq!(names("6.12-arm64"), ["linux-image-6.12.117+deb12-arm64"]);
        assert!(names("5.10").is_empty());
    }

    #[test]
    fn headers_of_a_kernel() {
        let all = parse(
            "Package: linux-headers-6.1.0-57-amd64\nVersion: 6.1.192-3\n\n\
             Package: linux-headers-6.1.0-57-common\nVersion: 6.1.192-3\n\n\
             Package: linux-kbuild-6.1\nVersion: 6.1.192-3\n\n\
             Package: linux-headers-7.3.4+deb13-amd64\nVersion: 7.3.4-1~bpo13+1\n\n\
             Package: linux-headers-7.3.4+deb13-common\nVersion: 7.3.4-1~bpo13+1\n\n\
             Package: linux-kbuild-7.3.4+deb13\nVersion: 7.3.4-1~bpo13+1\n\n\
             Package: linux-headers-7.3.4+deb13-arm64\nVersion: 7.3.4-1~bpo13+1\n",
        );
        let names =
            |release| kernel_headers(&all, release).map(|three| three.map(|p| p.name.as_str()));
        assert_eq!(
            names("6.1.0-57-amd64").map(|n| n[2]),
            Some("linux-kbuild-6.1")
        );
        assert_eq!(
            names("7.3.4+deb13-amd64"),
            Some([
                "linux-headers-7.3.4+deb13-amd64",
                "linux-headers-7.3.4+deb13-common",
                "linux-kbuild-7.3.4+deb13"
            ])
        );
        assert_eq!(
            names("7.3.4+deb13-arm64").map(|n| n[1]),
            Some("linux-headers-7.3.4+deb13-common")
        );
        assert_eq!(names("6.1.0-58-amd64"), None);
        assert_eq!(names("6.1.0-57"), None);
    }

    #[test]
    fn what_apt_would_install() {
        let index = parse("Package: make\nVersion: 4.4.1-2\nSize: 463272\n");
        let said = "NOTE: only a simulation\nInst gcc (4:14.2.0-1 Debian:13.8/stable [amd64]) []\n\
                    Inst make (4.4.1-2 Debian:13.8/stable [amd64])\nConf make (4.4.1-2)\nInst x\n";
        let got: Vec<_> = simulated(said, &index)
            .into_iter()
            .map(|p| (p.name, p.version, p.size))
            .collect();
        assert_eq!(
            got,
            [
                ("gcc".to_owned(), "4:14.2.0-1".to_owned(), 0),
                ("make".to_owned(), "4.4.1-2".to_owned(), 463_272)
            ]
        );
    }

    #[test]
    fn index_fields() {
        let all = parse(INDEX);
        assert_eq!(
            named(&all, "linux-image-6.12.117+deb12-amd64").map(|p| p.size),
            Some(107_179_464)
        );
        assert_eq!(named(&all, "nothing"), None);
        assert!(parse("").is_empty());
        assert!(parse("Package: x\n\nVersion: 1\n").is_empty());
        assert!(parse("\u{0}:::\n::\n Package: x\nPackage\n").is_empty());
    }

    #[test]
    fn order_of_versions() {
        for (a, b) in [
            ("6.1.27-1", "6.1.192-3"),
            ("6.12.117-1~deb12u1", "6.12.117-1"),
            ("1.0~rc1", "1.0"),
            ("1.0", "1.0a"),
            ("1.0a", "1.0+"),
            ("9", "1:1"),
            ("1.9", "1.10"),
            ("7.2.12-1", "7.3.4-1~bpo13+1"),
        ] {
            assert_eq!(compare(a, b), Ordering::Less, "{a} {b}");
            assert_eq!(compare(b, a), Ordering::Greater, "{b} {a}");
        }
        assert_eq!(compare("1.01", "1.1"), Ordering::Equal);
        assert_eq!(compare("", ""), Ordering::Equal);
    }
}

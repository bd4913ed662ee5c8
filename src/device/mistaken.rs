//! What somebody may have meant who opened a device by a name that no device has: a node's, a path, a
//! network interface's, or a device's with a letter too many. Looked up for errors only.

use std::fs;
use std::path::Path;

use super::{Device, Discovery};

/// What the name is, or which name is nearest, in words; `None` if nothing is near.
pub(super) fn hint(name: &str, devices: &[Device], discovery: &Discovery) -> Option<String> {
    node(name, devices)
        .or_else(|| interface(name, devices, discovery))
        .or_else(|| {
            let names = devices.iter().map(|device| device.name.as_str());
            nearest(name, names).map(|name| format!("did you mean {name:?}?"))
        })
}

/// A node: under the kernel's own name, or by a path.
fn node(name: &str, devices: &[Device]) -> Option<String> {
    let last = Path::new(name).file_name()?.to_str()?;
    if let Some(device) = devices.iter().find(|device| device.uverbs == last) {
        return Some(format!(
            "{last} is the node of {0:?}: open {0:?}",
            device.name
        ));
    }
    // The kernel has let no name with a slash in it through.
    (name.contains('/') || is_node(last)).then(|| {
        "a device is opened by its name and not by a node's: `devices` lists both".to_owned()
    })
}

fn is_node(name: &str) -> bool {
    let number = name.strip_prefix("uverbs").unwrap_or_default();
    !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
}

/// A network interface: with the devices that are on it, as their GIDs say.
fn interface(name: &str, devices: &[Device], discovery: &Discovery) -> Option<String> {
    // Neither nothing nor `..`, which are folders as well.
    let is_name = Path::new(name).file_name() == Some(name.as_ref());
    let there = || fs::exists(discovery.sys(&format!("class/net/{name}")));
    if !is_name || !there().is_ok_and(|there| there) {
        return None;
    }
    let mut text = format!("{name} is a network interface");
    let mut lead = "; on it is ";
    for device in devices
        .iter()
        .filter(|device| is_on(device, name, discovery))
    {
        text += lead;
        text += &device.name;
        lead = ", ";
    }
    Some(text)
}

fn is_on(device: &Device, interface: &str, discovery: &Discovery) -> bool {
    let folders = |path: String| {
        fs::read_dir(discovery.sys(&path))
            .into_iter()
            .flatten()
            .flatten()
    };
    folders(format!("class/infiniband/{}/ports", device.name)).any(|port| {
        let entries = fs::read_dir(port.path().join("gid_attrs/ndevs"));
        // Entries without a GID are refused when they are read.
        entries.into_iter().flatten().flatten().any(|entry| {
            fs::read_to_string(entry.path()).is_ok_and(|text| text.trim_end() == interface)
        })
    })
}

/// The name that differs least, if it is by two letters at most, and by less than half of them.
fn nearest<'n>(name: &str, names: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    let far = |other: &str| distance(&name.to_ascii_lowercase(), &other.to_ascii_lowercase());
    names
        .map(|other| (far(other), other))
        .filter(|(far, other)| *far <= 2 && far * 2 < other.chars().count())
        .min_by_key(|(far, _)| *far)
        .map(|(_, other)| other)
}

/// Letters to change, add or leave out (Levenshtein).
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.chars().count()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut corner = i;
        let mut left = i + 1;
        let mut next = vec![left];
        for (y, above) in b.chars().zip(row.iter().skip(1)) {
            left = (corner + usize::from(x != y)).min(left + 1).min(above + 1);
            corner = *above;
            next.push(left);
        }
        row = next;
    }
    row.last().copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_are_counted() {
        for (a, b, far) in [
            ("", "", 0),
            ("", "abc", 3),
            ("rxe0", "rxe0", 0),
            ("rxe", "rxe0", 1),
            ("rxe_0", "rxe0", 1),
            ("xre0", "rxe0", 2),
            ("kitten", "sitting", 3),
            ("mlx5_0", "rxe0", 4),
        ] {
            assert_eq!((distance(a, b), distance(b, a)), (far, far), "{a} {b}");
        }
    }

    #[test]
    fn only_what_is_near_is_meant() {
        let of = |name| nearest(name, ["rxe0", "rxe1", "mlx5_0"].into_iter());
        assert_eq!(of("rxe_0"), Some("rxe0"));
        assert_eq!(of("RXE1"), Some("rxe1"));
        assert_eq!(of("rxe"), Some("rxe0"));
        assert_eq!(of("mlx5_1"), Some("mlx5_0"));
        assert_eq!(
            (of("mlx4"), of("eth0"), of("no such device")),
            (None, None, None)
        );
        assert_eq!(of(""), None);
    }

    #[test]
    fn what_a_node_is_called() {
        assert!(is_node("uverbs0") && is_node("uverbs12"));
        assert!(!is_node("uverbs") && !is_node("uverbsx") && !is_node("rxe0"));
    }
}

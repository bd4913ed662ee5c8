//! A number and what it counts, for messages: one is not many.

use std::fmt;

/// Prints `1 byte`, `2 bytes`: how many, and of what, in the singular, whose plural ends in `s`.
#[derive(Clone, Copy, Debug)]
pub struct Count(pub u64, pub &'static str);

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.0 == 1 { "" } else { "s" };
        write!(f, "{} {}{plural}", self.0, self.1)
    }
}

#[cfg(test)]
mod tests {
    use super::Count;

    #[test]
    fn one_is_not_many() {
        let told = [0, 1, 2].map(|n| Count(n, "byte").to_string());
        assert_eq!(told, ["0 bytes", "1 byte", "2 bytes"]);
    }
}

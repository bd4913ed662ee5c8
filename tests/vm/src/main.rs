//! uverbs-vm.
fn main() {}

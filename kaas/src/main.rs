//! `kaas`: the command of the operator and of the build host.
fn main() {}

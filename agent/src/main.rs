//! `kaas-agent`: the command of the appliance VM.
fn main() {}

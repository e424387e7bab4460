//! From an image specification to a bootable disk and its OVA.
pub mod reference;

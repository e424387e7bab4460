//! Warnings about parts that vSphere would refuse or ignore.

/// A part of a package that DSP0243 allows, and vSphere refuses or ignores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// A stable name for scripts, such as `no-end-marker`; docs/reference/ovas.md lists them.
    pub code: &'static str,
    /// The subject, the reason and the remedy.
    pub message: String,
}

impl Warning {
    pub(super) fn new(code: &'static str, message: String) -> Warning {
        Warning { code, message }
    }
}

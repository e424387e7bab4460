//! What vSphere would refuse or ignore.

/// What DSP0243 allows in a package, and vSphere refuses or ignores.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// A stable name for scripts, such as `no-end-marker`; docs/reference.md lists them.
    pub code: &'static str,
    /// What is concerned, why, and what to do.
    pub message: String,
}

impl Warning {
    pub(super) fn new(code: &'static str, message: String) -> Warning {
        Warning { code, message }
    }
}

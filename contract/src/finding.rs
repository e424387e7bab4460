//! Findings: reports of bad input or a bad environment.
//!
//! A finding has the same words on the console, in the status file, in the journal and in guestinfo. Findings are collected and
//! reported together. Nothing is changed while one of [`Severity::Error`] exists.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The appliance continues.
    Warning,
    /// The appliance stops before it changes anything.
    Error,
}

/// A problem and its remedy. Only [`Code::finding`](crate::codes::Code::finding) makes one, so every code is documented:
///
/// ```compile_fail,E0639
/// let (code, subject, seen, action) = ("made.up".into(), "a".into(), "b".into(), "c".into());
/// contract::finding::Finding { code, severity: contract::finding::Severity::Error, subject, seen, action };
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[non_exhaustive]
pub struct Finding {
    /// Stable, dotted and lower-case, such as `address.duplicate`. Scripts and the documentation refer to it.
    pub code: String,
    /// How much it matters.
    pub severity: Severity,
    /// The subject of the problem: a property key, a device, a peer.
    pub subject: String,
    /// The observation. Never contains a secret.
    pub seen: String,
    /// The operator's remedy.
    pub action: String,
}

impl Finding {
    /// The same as a warning, for cases in which stopping would only do harm.
    pub fn softened(self) -> Self {
        Self { severity: Severity::Warning, ..self }
    }
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Warning => "warning",
            Self::Error => "error",
        })
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}: {}. {}", self.severity, self.code, self.subject, self.seen, self.action)
    }
}

/// All findings of one examination, in the order in which they were made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Findings(Vec<Finding>);

impl Findings {
    /// Adds one finding.
    pub fn push(&mut self, finding: Finding) {
        self.0.push(finding);
    }

    /// Adds the findings of another examination.
    pub fn extend(&mut self, other: Findings) {
        self.0.extend(other.0);
    }

    /// The findings that are not among `others`.
    pub fn without(mut self, others: &Self) -> Self {
        self.0.retain(|finding| !others.0.contains(finding));
        self
    }

    /// Whether a finding stops the appliance.
    pub fn has_errors(&self) -> bool {
        self.0.iter().any(|finding| finding.severity == Severity::Error)
    }

    /// Whether there are no findings.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The findings in order.
    pub fn iter(&self) -> std::slice::Iter<'_, Finding> {
        self.0.iter()
    }
}

impl fmt::Display for Findings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for finding in &self.0 {
            writeln!(f, "{finding}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Findings {}

impl From<Finding> for Findings {
    fn from(finding: Finding) -> Self {
        Self(vec![finding])
    }
}

impl FromIterator<Finding> for Findings {
    fn from_iter<T: IntoIterator<Item = Finding>>(findings: T) -> Self {
        Self(findings.into_iter().collect())
    }
}

impl From<Option<Finding>> for Findings {
    fn from(finding: Option<Finding>) -> Self {
        Self(finding.into_iter().collect())
    }
}

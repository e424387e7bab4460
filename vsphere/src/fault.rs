//! Faults, identified by their types. Their messages have the server's language and change between versions.

use std::fmt;

use crate::soap::Element;
use crate::treatment::{self, Treatment};

/// vCenter's reason for a failed call or task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Its type, such as `NoPermission`. `Untyped` if the server names none.
    pub kind: String,
    /// The server's message.
    pub message: String,
    /// Its fields, such as `privilegeId`, by name.
    pub details: Vec<(String, String)>,
    /// The fault that caused it.
    pub cause: Option<Box<Fault>>,
}

impl Fault {
    /// The fault of a SOAP answer.
    pub(crate) fn of_answer(fault: &Element) -> Self {
        let message = fault.text_of("faultstring").unwrap_or_default();
        match fault.child("detail").and_then(|detail| detail.children().first()) {
            // If `xsi:type` is missing, the element's name is the type with an ending.
            Some(detail) => {
                let kind = detail.kind().unwrap_or_else(|| detail.name().trim_end_matches("Fault"));
                Self::of_type(kind, detail, message)
            }
            None => Self::of_type("Untyped", &Element::new("none"), message),
        }
    }

    /// A `LocalizedMethodFault` of a task or of a missing property.
    pub(crate) fn localized(fault: &Element) -> Self {
        let message = fault.text_of("localizedMessage").unwrap_or_default();
        match fault.child("fault") {
            Some(inner) => Self::of_type(inner.kind().unwrap_or("MethodFault"), inner, message),
            None => Self::of_type("Untyped", &Element::new("none"), message),
        }
    }

    fn of_type(kind: &str, element: &Element, message: &str) -> Self {
        let leaves = element.children().iter().filter(|child| child.children().is_empty() && !child.value().is_empty());
        let details = leaves.map(|leaf| (leaf.name().to_owned(), leaf.value().to_owned())).collect();
        // Every fault has `faultCause`. Some types have the cause in another field.
        let behind = ["faultCause", "fault", "reason"].iter().find_map(|name| element.child(name));
        let cause = behind.filter(|inner| inner.kind().is_some() || inner.child("fault").is_some());
        let cause = cause.map(|inner| match inner.child("fault") {
            Some(_) => Self::localized(inner),
            None => Self::of_type(inner.kind().unwrap_or("MethodFault"), inner, ""),
        });
        Self { kind: kind.to_owned(), message: message.trim().to_owned(), details, cause: cause.map(Box::new) }
    }

    /// Whether it, or one of its causes, has this type.
    pub fn is(&self, kind: &str) -> bool {
        self.chain().any(|fault| fault.kind == kind)
    }

    /// A field of it, or of one of its causes.
    pub fn detail(&self, name: &str) -> Option<&str> {
        let mut all = self.chain().flat_map(|fault| &fault.details);
        all.find(|(field, _)| field == name).map(|(_, value)| value.as_str())
    }

    /// Whether a message of it, or of one of its causes, contains this text.
    pub fn says(&self, words: &str) -> bool {
        let mut said = self.chain().flat_map(|fault| {
            let details = fault.details.iter().map(|(_, value)| value);
            std::iter::once(&fault.message).chain(details)
        });
        said.any(|text| text.contains(words))
    }

    /// The treatment of the call, by the fault's type. If the table does not have it, by the type of a cause.
    pub fn treatment(&self) -> Treatment {
        self.chain().find_map(|fault| treatment::known(&fault.kind)).unwrap_or(treatment::OF_UNKNOWN)
    }

    fn chain(&self) -> impl Iterator<Item = &Fault> {
        std::iter::successors(Some(self), |fault| fault.cause.as_deref())
    }
}

/// Writes its type and message, and its causes.
impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.kind)?;
        if !self.message.is_empty() {
            // The server's message ends with a period, and the sentence may continue.
            write!(f, " ({})", self.message.trim_end_matches('.'))?;
        }
        if self.kind == "NoPermission"
            && let Some(privilege) = self.detail("privilegeId")
        {
            write!(f, ": the privilege {privilege} on {} is missing", self.detail("object").unwrap_or("an object"))?;
        }
        match &self.cause {
            Some(cause) => write!(f, ", because of {cause}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::treatment::{Again, Outcome, TREATMENTS};

    fn leaf(name: &str, text: &str) -> Element {
        Element::text(name, text)
    }

    #[test]
    fn a_fault_names_its_type_and_missing_privilege() {
        let inner = Element::new("NoPermissionFault").of("NoPermission");
        let inner = inner.with([leaf("object", "vm-1"), leaf("privilegeId", "VirtualMachine.Interact.PowerOn")]);
        let answer = Element::new("Fault")
            .with([leaf("faultstring", "Permission denied."), Element::new("detail").with([inner])]);
        let fault = Fault::of_answer(&answer);
        assert_eq!(
            fault.to_string(),
            "NoPermission (Permission denied): the privilege VirtualMachine.Interact.PowerOn on vm-1 is missing"
        );
        assert_eq!(fault.treatment(), Treatment { outcome: Outcome::Denied, again: Again::Never });
    }

    #[test]
    fn faults_without_a_known_type_are_in_doubt() {
        let detail = |inner: Element| Element::new("Fault").with([Element::new("detail").with([inner])]);
        assert_eq!(Fault::of_answer(&detail(Element::new("InvalidLoginFault"))).kind, "InvalidLogin");
        for answer in [Element::new("Fault"), detail(Element::new("OfALaterVersionFault"))] {
            assert_eq!(Fault::of_answer(&answer).treatment().outcome, Outcome::InDoubt);
        }
        assert_eq!(Fault::localized(&Element::new("error")).treatment().outcome, Outcome::InDoubt);
    }

    #[test]
    fn the_cause_of_a_fault_decides_its_treatment() {
        let cause = Element::new("faultCause")
            .with([Element::new("fault").of("FileLocked").with([leaf("file", "[ds] a.vmdk")])]);
        let error = Element::new("error").with([
            Element::new("fault").of("GenericVmConfigFault").with([cause]),
            leaf("localizedMessage", "Cannot open the disk."),
        ]);
        let fault = Fault::localized(&error);
        assert!(fault.is("FileLocked") && fault.is("GenericVmConfigFault") && !fault.is("NoDiskSpace"));
        assert_eq!((fault.treatment().outcome, fault.detail("file")), (Outcome::Transient, Some("[ds] a.vmdk")));
        assert_eq!(fault.to_string(), "GenericVmConfigFault (Cannot open the disk), because of FileLocked");
    }

    #[test]
    fn faults_have_one_row_and_three_are_repeated() {
        let mut names: Vec<&str> = TREATMENTS.iter().map(|(name, ..)| *name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), TREATMENTS.len());
        let again: Vec<&str> = TREATMENTS.iter().filter(|row| row.2 != Again::Never).map(|row| row.0).collect();
        assert_eq!(again, ["NotAuthenticated", "PbmFaultInvalidLogin", "TaskInProgress"]);
        // A repeated call must have had no effect.
        assert!(TREATMENTS.iter().all(|row| row.2 == Again::Never || row.1 == Outcome::Transient));
    }
}

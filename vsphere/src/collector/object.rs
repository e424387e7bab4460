//! The requested properties of an object.

use std::collections::BTreeMap;
use std::str::FromStr;

use crate::error::{Error, Result};
use crate::fault::Fault;
use crate::reference::MoRef;
use crate::soap::{Element, Malformed};

/// Properties of an object.
#[derive(Clone, Debug)]
pub struct Object {
    /// The object.
    pub reference: MoRef,
    values: BTreeMap<String, Element>,
    missing: BTreeMap<String, Fault>,
}

impl Object {
    /// Reads an `ObjectContent`.
    pub(super) fn read(content: &Element) -> std::result::Result<Self, Malformed> {
        let mut object =
            Self { reference: content.need_reference("obj")?, values: BTreeMap::new(), missing: BTreeMap::new() };
        for property in content.all("propSet") {
            // vCenter leaves out unset properties. vcsim names them without a value.
            if let Some(value) = property.child("val") {
                object.values.insert(property.need_parsed("name")?, value.clone());
            }
        }
        for missing in content.all("missingSet") {
            object.missing.insert(missing.need_parsed("path")?, Fault::localized(missing.need("fault")?));
        }
        Ok(object)
    }

    /// Applies changes of the properties (`ObjectUpdate.changeSet`).
    pub(super) fn update(&mut self, update: &Element) {
        for change in update.all("changeSet") {
            let Some(name) = change.text_of("name") else { continue };
            match change.child("val") {
                Some(value) => self.values.insert(name.to_owned(), value.clone()),
                None => self.values.remove(name),
            };
        }
    }

    pub(super) fn empty(reference: MoRef) -> Self {
        Self { reference, values: BTreeMap::new(), missing: BTreeMap::new() }
    }

    /// A property. `None` if it is unset or unreadable.
    pub fn get(&self, path: &str) -> Option<&Element> {
        self.values.get(path)
    }

    /// The text of a property. Empty if it is unset.
    pub fn text(&self, path: &str) -> &str {
        self.get(path).map(Element::value).unwrap_or_default()
    }

    /// The parsed value of a property. `None` if it is unset or has another form.
    pub fn parsed<T: FromStr>(&self, path: &str) -> Option<T> {
        self.text(path).trim().parse().ok()
    }

    /// Whether a property is true.
    pub fn flag(&self, path: &str) -> bool {
        matches!(self.text(path).trim(), "true" | "1")
    }

    /// The object that a property names.
    pub fn reference_at(&self, path: &str) -> Option<MoRef> {
        self.get(path)?.to_reference()
    }

    /// The objects that a property names.
    pub fn references_at(&self, path: &str) -> Vec<MoRef> {
        self.get(path).map(Element::references).unwrap_or_default()
    }

    /// A property that the object must have. The error has vCenter's reason, such as a missing privilege.
    pub fn need(&self, path: &str) -> Result<&Element> {
        self.get(path).ok_or_else(|| {
            let attempt = format!("reading {path} of {}", self.reference);
            match self.missing.get(path) {
                Some(fault) => Error::of_fault(attempt, fault.clone()),
                None => Error::unanswered(attempt, "vCenter does not say it"),
            }
        })
    }

    /// A property that is always set: if it is missing, the account may not read the object. The error is then
    /// [`Error::Unreadable`], with `on` as the users' name of the object.
    pub(crate) fn need_readable(&self, path: &str, on: &str) -> Result<&Element> {
        match self.missing.get(path) {
            Some(fault) if !fault.is("NoPermission") => self.need(path),
            _ => self.get(path).ok_or_else(|| Error::unreadable(format!("reading {path} of {}", self.reference), on)),
        }
    }
}

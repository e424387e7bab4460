//! One element of the API, as it is sent and as it is read: what is read can be sent again unchanged, whatever a later
//! version of vCenter has put into it.

use std::fmt;
use std::str::FromStr;

use zeroize::Zeroizing;

use crate::reference::MoRef;

/// What `xsi:type` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A type of the API, by its local name: prefixes differ between servers.
    Vim(String),
    /// A type of XML Schema, such as `string` or `int`.
    Xsd(String),
}

/// An element. Texts may be secrets: they are not shown.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Element {
    name: String,
    kind: Option<Kind>,
    /// The attribute `type`, which references have.
    of: Option<String>,
    text: Zeroizing<String>,
    children: Vec<Element>,
}

/// An element is not as the API has it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{element} has no usable {missing}")]
pub struct Malformed {
    /// The element.
    pub element: String,
    /// What it lacks.
    pub missing: String,
}

impl Element {
    /// An element with nothing in it.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    /// An element with a text.
    pub fn text(name: impl Into<String>, text: impl fmt::Display) -> Self {
        Self { text: Zeroizing::new(text.to_string()), ..Self::new(name) }
    }

    /// An element that names an object.
    pub fn reference(name: impl Into<String>, to: &MoRef) -> Self {
        Self { of: Some(to.kind.clone()), ..Self::text(name, &to.id) }
    }

    /// The same, of this type of the API.
    #[must_use]
    pub fn of(self, kind: impl Into<String>) -> Self {
        Self { kind: Some(Kind::Vim(kind.into())), ..self }
    }

    /// The same, of this type of XML Schema.
    #[must_use]
    pub fn xsd(self, kind: impl Into<String>) -> Self {
        Self { kind: Some(Kind::Xsd(kind.into())), ..self }
    }

    /// The same, with these in it after what is there.
    #[must_use]
    pub fn with(mut self, children: impl IntoIterator<Item = Element>) -> Self {
        self.children.extend(children);
        self
    }

    /// The same under another name.
    #[must_use]
    pub fn named(self, name: impl Into<String>) -> Self {
        Self { name: name.into(), ..self }
    }

    /// Its name, without a prefix.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its type, if it says one: the local name.
    pub fn kind(&self) -> Option<&str> {
        self.kind.as_ref().map(|kind| match kind {
            Kind::Vim(name) | Kind::Xsd(name) => name.as_str(),
        })
    }

    /// Its text.
    pub fn value(&self) -> &str {
        &self.text
    }

    /// All in it, in order.
    pub fn children(&self) -> &[Element] {
        &self.children
    }

    /// Those in it with this name, in order.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Element> {
        self.children.iter().filter(move |child| child.name == name)
    }

    /// The first in it with this name.
    pub fn child(&self, name: &str) -> Option<&Element> {
        self.children.iter().find(|child| child.name == name)
    }

    /// The one that a way of names leads to.
    pub fn at(&self, way: &[&str]) -> Option<&Element> {
        way.iter().try_fold(self, |element, name| element.child(name))
    }

    /// The text of what is in it with this name.
    pub fn text_of(&self, name: &str) -> Option<&str> {
        self.child(name).map(Element::value)
    }

    /// The text of what is in it with this name, understood; none if there is none, or it is not understood.
    pub fn parsed<T: FromStr>(&self, name: &str) -> Option<T> {
        self.text_of(name)?.trim().parse().ok()
    }

    /// Whether what is in it with this name says yes (XML Schema part 2, §3.2.2: `true` or `1`).
    pub fn flag(&self, name: &str) -> bool {
        matches!(self.text_of(name).map(str::trim), Some("true" | "1"))
    }

    /// The object that it names, if it does.
    pub fn to_reference(&self) -> Option<MoRef> {
        let kind = self.of.as_deref().filter(|kind| !kind.is_empty())?;
        (!self.text.is_empty()).then(|| MoRef::new(kind, self.text.as_str()))
    }

    /// The object that what is in it with this name names.
    pub fn reference_of(&self, name: &str) -> Option<MoRef> {
        self.child(name)?.to_reference()
    }

    /// All objects that it names: a property of several references.
    pub fn references(&self) -> Vec<MoRef> {
        self.children.iter().filter_map(Element::to_reference).collect()
    }

    /// What is in it with this name.
    ///
    /// # Errors
    /// When there is none.
    pub fn need(&self, name: &str) -> Result<&Element, Malformed> {
        self.child(name).ok_or_else(|| self.lacks(name))
    }

    /// The text of what is in it with this name, understood.
    ///
    /// # Errors
    /// When there is none, or it is not understood.
    pub fn need_parsed<T: FromStr>(&self, name: &str) -> Result<T, Malformed> {
        self.parsed(name).ok_or_else(|| self.lacks(name))
    }

    /// The object that what is in it with this name names.
    ///
    /// # Errors
    /// When there is none.
    pub fn need_reference(&self, name: &str) -> Result<MoRef, Malformed> {
        self.reference_of(name).ok_or_else(|| self.lacks(name))
    }

    /// The error that something is missing in it.
    pub(crate) fn lacks(&self, missing: &str) -> Malformed {
        Malformed { element: self.name.clone(), missing: missing.to_owned() }
    }

    /// Puts an element in place of the one in it with its name, or at the end.
    pub(crate) fn put(&mut self, child: Element) {
        match self.children.iter_mut().find(|present| present.name == child.name) {
            Some(present) => *present = child,
            None => self.children.push(child),
        }
    }

    /// The same with this text in it.
    pub(crate) fn put_text(mut self, name: &str, text: impl fmt::Display) -> Self {
        self.put(Element::text(name, text));
        self
    }

    /// Changes the text of what is in it with this name, if it is there.
    pub(crate) fn child_mut(&mut self, name: &str) -> Option<&mut Element> {
        self.children.iter_mut().find(|child| child.name == name)
    }

    /// Adds an element at the end.
    pub(crate) fn push(&mut self, child: Element) {
        self.children.push(child);
    }

    /// Takes away those in it that are to go.
    pub(crate) fn retain(&mut self, keep: impl FnMut(&Element) -> bool) {
        self.children.retain(keep);
    }

    /// Puts what is in it into the order of a schema: SOAP's sequences are read in order. Names that the order does not
    /// know stay at the end.
    pub(crate) fn sort_by_schema(&mut self, order: &[&str]) {
        let place = |child: &Element| order.iter().position(|name| *name == child.name).unwrap_or(order.len());
        self.children.sort_by_key(place);
    }

    pub(super) fn said_kind(&self) -> Option<&Kind> {
        self.kind.as_ref()
    }

    pub(super) fn said_of(&self) -> Option<&str> {
        self.of.as_deref()
    }

    pub(super) fn set(&mut self, kind: Option<Kind>, of: Option<String>, text: String) {
        (self.kind, self.of, self.text) = (kind, of, Zeroizing::new(text));
    }
}

/// Names only.
impl fmt::Debug for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "<{}", self.name)?;
        if let Some(kind) = self.kind() {
            write!(f, " {kind}")?;
        }
        f.write_str(">")?;
        if self.children.is_empty() { Ok(()) } else { f.debug_list().entries(&self.children).finish() }
    }
}

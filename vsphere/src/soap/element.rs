//! An element of the API, as it is sent and read. An element that was read can be sent again unchanged, with parts of
//! later versions of vCenter.

use std::fmt;
use std::str::FromStr;

use zeroize::Zeroizing;

use crate::reference::MoRef;

/// The value of `xsi:type`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A type of the API, by its local name. Prefixes differ between servers.
    Vim(String),
    /// A type of XML Schema, such as `string` or `int`.
    Xsd(String),
}

/// An element. Its text is not shown, because it may be a secret.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Element {
    name: String,
    kind: Option<Kind>,
    /// The attribute `type` of references.
    of: Option<String>,
    text: Zeroizing<String>,
    children: Vec<Element>,
}

/// An element that does not have the form of the API.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{element} has no usable {missing}")]
pub struct Malformed {
    /// The element.
    pub element: String,
    /// The missing or unusable part.
    pub missing: String,
}

impl Element {
    /// An empty element.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    /// An element with a text.
    pub fn text(name: impl Into<String>, text: impl fmt::Display) -> Self {
        Self { text: Zeroizing::new(text.to_string()), ..Self::new(name) }
    }

    /// An element that refers to an object.
    pub fn reference(name: impl Into<String>, to: &MoRef) -> Self {
        Self { of: Some(to.kind.clone()), ..Self::text(name, &to.id) }
    }

    /// Sets its type to a type of the API.
    #[must_use]
    pub fn of(self, kind: impl Into<String>) -> Self {
        Self { kind: Some(Kind::Vim(kind.into())), ..self }
    }

    /// Sets its type to a type of XML Schema.
    #[must_use]
    pub fn xsd(self, kind: impl Into<String>) -> Self {
        Self { kind: Some(Kind::Xsd(kind.into())), ..self }
    }

    /// Adds children at the end.
    #[must_use]
    pub fn with(mut self, children: impl IntoIterator<Item = Element>) -> Self {
        self.children.extend(children);
        self
    }

    /// Sets its name.
    #[must_use]
    pub fn named(self, name: impl Into<String>) -> Self {
        Self { name: name.into(), ..self }
    }

    /// Its name without the prefix.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The local name of its type, if it has one.
    pub fn kind(&self) -> Option<&str> {
        self.kind.as_ref().map(|kind| match kind {
            Kind::Vim(name) | Kind::Xsd(name) => name.as_str(),
        })
    }

    /// Its text.
    pub fn value(&self) -> &str {
        &self.text
    }

    /// Its children, in order.
    pub fn children(&self) -> &[Element] {
        &self.children
    }

    /// The children with this name, in order.
    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Element> {
        self.children.iter().filter(move |child| child.name == name)
    }

    /// The first child with this name.
    pub fn child(&self, name: &str) -> Option<&Element> {
        self.children.iter().find(|child| child.name == name)
    }

    /// The descendant at a path of names.
    pub fn at(&self, way: &[&str]) -> Option<&Element> {
        way.iter().try_fold(self, |element, name| element.child(name))
    }

    /// The text of the child with this name.
    pub fn text_of(&self, name: &str) -> Option<&str> {
        self.child(name).map(Element::value)
    }

    /// The parsed text of the child with this name. `None` if the child is missing or has another form.
    pub fn parsed<T: FromStr>(&self, name: &str) -> Option<T> {
        self.text_of(name)?.trim().parse().ok()
    }

    /// Whether the child with this name is true (XML Schema part 2, §3.2.2: `true` or `1`).
    pub fn flag(&self, name: &str) -> bool {
        matches!(self.text_of(name).map(str::trim), Some("true" | "1"))
    }

    /// The object that it refers to, if it is a reference.
    pub fn to_reference(&self) -> Option<MoRef> {
        let kind = self.of.as_deref().filter(|kind| !kind.is_empty())?;
        (!self.text.is_empty()).then(|| MoRef::new(kind, self.text.as_str()))
    }

    /// The object that the child with this name refers to.
    pub fn reference_of(&self, name: &str) -> Option<MoRef> {
        self.child(name)?.to_reference()
    }

    /// The objects that its children refer to, for a property of several references.
    pub fn references(&self) -> Vec<MoRef> {
        self.children.iter().filter_map(Element::to_reference).collect()
    }

    /// The child with this name.
    pub fn need(&self, name: &str) -> Result<&Element, Malformed> {
        self.child(name).ok_or_else(|| self.lacks(name))
    }

    /// The parsed text of the child with this name.
    pub fn need_parsed<T: FromStr>(&self, name: &str) -> Result<T, Malformed> {
        self.parsed(name).ok_or_else(|| self.lacks(name))
    }

    /// The object that the child with this name refers to.
    pub fn need_reference(&self, name: &str) -> Result<MoRef, Malformed> {
        self.reference_of(name).ok_or_else(|| self.lacks(name))
    }

    /// The error of a missing part.
    pub(crate) fn lacks(&self, missing: &str) -> Malformed {
        Malformed { element: self.name.clone(), missing: missing.to_owned() }
    }

    /// Replaces the child with the same name, or adds it at the end.
    pub(crate) fn put(&mut self, child: Element) {
        match self.children.iter_mut().find(|present| present.name == child.name) {
            Some(present) => *present = child,
            None => self.children.push(child),
        }
    }

    /// Sets the text of the child with this name.
    pub(crate) fn put_text(mut self, name: &str, text: impl fmt::Display) -> Self {
        self.put(Element::text(name, text));
        self
    }

    pub(crate) fn child_mut(&mut self, name: &str) -> Option<&mut Element> {
        self.children.iter_mut().find(|child| child.name == name)
    }

    pub(crate) fn push(&mut self, child: Element) {
        self.children.push(child);
    }

    /// Keeps only the children for which `keep` returns true.
    pub(crate) fn retain(&mut self, keep: impl FnMut(&Element) -> bool) {
        self.children.retain(keep);
    }

    /// Sorts the children in the order of a schema, because SOAP's sequences have an order. Children with other names
    /// are at the end.
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

/// Writes the names only.
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

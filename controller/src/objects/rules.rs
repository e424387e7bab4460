//! Rules in CEL, as `x-kubernetes-validations` has them. Knows no kind.
//!
//! The libraries for addresses are Kubernetes' own ("Kubernetes IP address library", "Kubernetes CIDR library"). A rule is
//! evaluated also where another one has found its text malformed: it asks first.

use serde_json::{Value, json};

/// A rule, and what somebody is told who breaks it.
pub(super) fn rule(rule: impl Into<String>, message: &str) -> Value {
    json!({"rule": rule.into(), "message": message})
}

/// The same, of a field of the object that the rule is for.
pub(super) fn at(field: &str, text: impl Into<String>, message: &str) -> Value {
    let mut rule = rule(text, message);
    rule["fieldPath"] = json!(format!(".{field}"));
    rule
}

/// A field that is always there stays what it was.
pub(super) fn fixed(field: &str, message: &str) -> Value {
    at(field, format!("self.{field} == oldSelf.{field}"), message)
}

/// A field that may be left out stays what it was, and left out if it was.
pub(super) fn fixed_if_given(field: &str, message: &str) -> Value {
    let text =
        format!("has(self.{field}) == has(oldSelf.{field}) && (!has(self.{field}) || self.{field} == oldSelf.{field})");
    // The API server wants the path of a field that is there.
    rule(text, message)
}

/// The whole object stays what it was.
pub(super) fn unchanged(message: &str) -> Value {
    rule("self == oldSelf", message)
}

/// Exactly one of two fields is there.
pub(super) fn one_of(first: &str, second: &str, message: &str) -> Value {
    rule(format!("has(self.{first}) != has(self.{second})"), message)
}

/// An expression of an IPv4 address as a number, so that addresses can be ordered: the library for addresses cannot.
pub(super) fn number(text: &str) -> String {
    let octet = |place: usize| format!("int({text}.split('.')[{place}])");
    format!("(({} * 256 + {}) * 256 + {}) * 256 + {}", octet(0), octet(1), octet(2), octet(3))
}

/// Entries of a list are different from each other.
pub(super) fn distinct(list: &str, message: &str) -> Value {
    rule(format!("{list}.all(one, {list}.exists_one(other, other == one))"), message)
}

//! Rules in CEL for `x-kubernetes-validations`. Knows no kind.
//!
//! The functions for addresses are Kubernetes' own ("Kubernetes IP address library", "Kubernetes CIDR library"). A rule is
//! evaluated even if another rule has found its text malformed, so it checks the form first.

use serde_json::{Value, json};

/// A rule, and the message when it is broken.
pub(super) fn rule(rule: impl Into<String>, message: &str) -> Value {
    json!({"rule": rule.into(), "message": message})
}

/// A rule whose message names a field of the object.
pub(super) fn at(field: &str, text: impl Into<String>, message: &str) -> Value {
    let mut rule = rule(text, message);
    rule["fieldPath"] = json!(format!(".{field}"));
    rule
}

/// A required field cannot change.
pub(super) fn fixed(field: &str, message: &str) -> Value {
    at(field, format!("self.{field} == oldSelf.{field}"), message)
}

/// An optional field cannot change, and cannot be added or removed.
pub(super) fn fixed_if_given(field: &str, message: &str) -> Value {
    let text =
        format!("has(self.{field}) == has(oldSelf.{field}) && (!has(self.{field}) || self.{field} == oldSelf.{field})");
    // Without a path: an API server wants the path of an existing field.
    rule(text, message)
}

/// The whole object cannot change.
pub(super) fn unchanged(message: &str) -> Value {
    rule("self == oldSelf", message)
}

/// Exactly one of two fields is set.
pub(super) fn one_of(first: &str, second: &str, message: &str) -> Value {
    rule(format!("has(self.{first}) != has(self.{second})"), message)
}

/// A CEL expression of an IPv4 address as a number. Addresses can be ordered by it; the library for addresses has no order.
pub(super) fn number(text: &str) -> String {
    let octet = |place: usize| format!("int({text}.split('.')[{place}])");
    format!("(({} * 256 + {}) * 256 + {}) * 256 + {}", octet(0), octet(1), octet(2), octet(3))
}

/// Entries of a list are distinct.
pub(super) fn distinct(list: &str, message: &str) -> Value {
    rule(format!("{list}.all(one, {list}.exists_one(other, other == one))"), message)
}

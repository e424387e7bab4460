//! Schemas of strings in records that objects of a control cluster store.

use std::fmt::Debug;

use schemars::{Schema, SchemaGenerator, json_schema};
use serde::Serializer;
use serde_json::{Value, json};

const UUID: &str = "^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$";

macro_rules! schemas {
    ($($(#[$doc:meta])* $name:ident = $schema:tt;)*) => {
        $($(#[$doc])* pub fn $name(_: &mut SchemaGenerator) -> Schema { json_schema!($schema) })*
    };
}

schemas! {
    /// A DNS label (RFC 1123, section 2.1), lower-case.
    label = {"type": "string", "minLength": 1, "maxLength": 63, "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"};
    /// An IPv4 address of a host.
    ipv4 = {
        "type": "string", "minLength": 7, "maxLength": 15, "pattern": r"^[0-9]{1,3}(\.[0-9]{1,3}){3}$",
        "x-kubernetes-validations": [{
            "rule": "isIP(self) && ip(self).isGlobalUnicast() && !self.startsWith('0.') && int(self.split('.')[0]) < 224",
            "message": "is not the IPv4 address of a host: four numbers from 0 to 255 with dots between them, neither loopback, \
                        link-local nor multicast"
        }]
    };
    /// A SHA-256 of content.
    digest = {"type": "string", "minLength": 71, "maxLength": 71, "pattern": "^sha256:[0-9a-f]{64}$"};
    uuid = {"type": "string", "minLength": 36, "maxLength": 36, "pattern": UUID};
    /// A name or code.
    word = {"type": "string", "maxLength": 253};
    sentence = {"type": "string", "maxLength": 1024};
    /// The public half of a join token.
    token = {"type": "string", "minLength": 6, "maxLength": 6, "pattern": "^[a-z0-9]{6}$"};
    /// A time as records write it: in UTC, with whole seconds, from 1970.
    time = {
        "type": "string", "format": "date-time", "minLength": 20, "maxLength": 20,
        "pattern": "^(19[7-9][0-9]|[2-9][0-9]{3})-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z$"
    };
}

/// Marks a list: each item has other values of these fields.
pub fn keyed(fields: &'static [&'static str]) -> impl FnMut(&mut Schema) {
    move |schema: &mut Schema| {
        schema.insert("x-kubernetes-list-type".to_owned(), "map".into());
        schema.insert("x-kubernetes-list-map-keys".to_owned(), fields.into());
    }
}

/// The rules of a map whose keys are BIOS UUIDs: keys have no schema.
pub(crate) fn by_vm() -> Value {
    json!([{
        "rule": format!("self.all(key, key.matches('{UUID}'))"),
        "message": "has a key that is not the BIOS UUID of a VM",
    }])
}

macro_rules! lists {
    ($($(#[$doc:meta])* $name:ident = $most:literal of $entry:ident;)*) => {
        $($(#[$doc])* pub fn $name(generator: &mut SchemaGenerator) -> Schema {
            json_schema!({"type": "array", "maxItems": $most, "items": $entry(generator)})
        })*
    };
}

lists! {
    /// Disks of one VM.
    uuids = 64 of uuid;
    /// Disks of one cluster that are kept or still to be deleted.
    removals = 512 of uuid;
}

/// A variant of a record as the output of `kaas` writes it.
pub(crate) fn lowercase<T: Debug, S: Serializer>(variant: &T, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&format!("{variant:?}").to_lowercase())
}

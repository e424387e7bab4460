//! The properties of a VM's OVF form, as vCenter keeps them.

use std::fmt;

use crate::soap::Element;

/// The order of `VAppPropertyInfo` (vSphere Web Services API 8.0).
const ORDER: [&str; 12] = [
    "key",
    "classId",
    "instanceId",
    "id",
    "category",
    "label",
    "type",
    "typeReference",
    "userConfigurable",
    "defaultValue",
    "value",
    "description",
];

/// A property. Its value is not shown, because it may be a secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Property {
    /// Its identifier in this VM.
    pub key: i32,
    /// The class, often empty.
    pub class: String,
    /// The identifier in the class.
    pub id: String,
    /// The instance, often empty.
    pub instance: String,
    /// Its type, such as `string` or `password`.
    pub kind: String,
    /// The value, or the default if no value was set.
    pub value: String,
    /// Whether a value was set.
    pub is_given: bool,
    /// Whether operators may set it. Properties that describe the image are not configurable.
    pub is_configurable: bool,
    pub(super) element: Element,
}

impl Property {
    /// Reads a `VAppPropertyInfo`. `None` if it has no key.
    pub fn read(info: &Element) -> Option<Self> {
        let text = |name: &str| info.text_of(name).unwrap_or_default().to_owned();
        let value = info.text_of("value").filter(|value| !value.is_empty());
        Some(Self {
            key: info.parsed("key")?,
            class: text("classId"),
            id: text("id"),
            instance: text("instanceId"),
            kind: text("type"),
            is_given: value.is_some(),
            // A missing flag means false (`VAppPropertyInfo.userConfigurable`).
            is_configurable: info.flag("userConfigurable"),
            value: value.map_or_else(|| text("defaultValue"), str::to_owned),
            element: info.clone().named("info"),
        })
    }

    /// The whole `VAppPropertyInfo` with another value, in the order of its schema. The effect of an edit on parts that
    /// it leaves out is not documented.
    pub(super) fn with_value(&self, value: &str) -> Element {
        let mut info = self.element.clone().put_text("value", value);
        info.sort_by_schema(&ORDER);
        info
    }

    /// Its name in the guest's environment: `[class.]id[.instance]` (DSP0243 1.1 §9.5).
    pub fn name(&self) -> String {
        let parts = [&self.class, &self.id, &self.instance];
        parts.into_iter().filter(|part| !part.is_empty()).map(String::as_str).collect::<Vec<_>>().join(".")
    }
}

impl fmt::Debug for Property {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Property({})", self.name())
    }
}

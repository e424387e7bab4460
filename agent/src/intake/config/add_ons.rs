//! The parts of a cluster in addition to its control plane, as chosen by the properties.

use std::fmt;

use contract::form::Draft;
use contract::properties::{self as table, AddressRange};
use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AddOns {
    pub dns: bool,
    pub metrics: bool,
    /// The storage class for volumes on data disks of workers.
    pub local_volumes: bool,
    /// The addresses of services of the type `LoadBalancer`. Without any, these services get no address.
    pub service_addresses: Vec<AddressRange>,
}

/// Cluster DNS alone: the add-ons of roles without these properties.
impl Default for AddOns {
    fn default() -> Self {
        Self { dns: true, metrics: false, local_volumes: false, service_addresses: Vec::new() }
    }
}

impl AddOns {
    /// The add-ons of the form. A role that does not use a property has its default here.
    pub(super) fn of(draft: &Draft) -> Self {
        let none = Self::default();
        Self {
            dns: draft.cluster_dns.unwrap_or(none.dns),
            metrics: draft.cluster_metrics.unwrap_or(none.metrics),
            local_volumes: draft.local_volumes.unwrap_or(none.local_volumes),
            service_addresses: draft.service_addresses.clone(),
        }
    }

    /// The pool of addresses in the property's format.
    pub fn addresses(&self) -> String {
        self.service_addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
    }

    pub(super) fn properties(&self) -> [(&'static str, Option<String>); 4] {
        [
            (table::CLUSTER_DNS, Some(self.dns.to_string())),
            (table::CLUSTER_METRICS, Some(self.metrics.to_string())),
            (table::LOCAL_VOLUMES, Some(self.local_volumes.to_string())),
            (table::SERVICE_VIPS, Some(self.addresses())),
        ]
    }
}

/// In one line: `cluster-dns=true cluster-metrics=false …`.
impl fmt::Display for AddOns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = self.properties().map(|(key, value)| format!("{key}={}", value.unwrap_or_default()));
        f.write_str(&words.join(" "))
    }
}

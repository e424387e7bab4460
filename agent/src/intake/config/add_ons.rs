//! What the appliance brings into a cluster besides its control plane, as the properties choose it.

use std::fmt;

use contract::form::Draft;
use contract::properties::{self as table, AddressRange};
use serde::{Deserialize, Serialize};

/// Which add-ons a cluster has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AddOns {
    pub dns: bool,
    pub metrics: bool,
    /// The class for volumes on data disks of workers.
    pub local_volumes: bool,
    /// The addresses of services of the type `LoadBalancer`; without any, nothing gives them out.
    pub service_addresses: Vec<AddressRange>,
}

/// Cluster DNS alone: what clusters have that are asked nothing of this.
impl Default for AddOns {
    fn default() -> Self {
        Self { dns: true, metrics: false, local_volumes: false, service_addresses: Vec::new() }
    }
}

impl AddOns {
    /// As the form has it; a role that does not use a property has its default here.
    pub(super) fn of(draft: &Draft) -> Self {
        let none = Self::default();
        Self {
            dns: draft.cluster_dns.unwrap_or(none.dns),
            metrics: draft.cluster_metrics.unwrap_or(none.metrics),
            local_volumes: draft.local_volumes.unwrap_or(none.local_volumes),
            service_addresses: draft.service_addresses.clone(),
        }
    }

    /// The pool of addresses as the property has it.
    pub fn addresses(&self) -> String {
        self.service_addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
    }

    /// Keys and values of the properties that give it.
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

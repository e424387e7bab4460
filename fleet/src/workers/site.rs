//! What a worker is told as OVF properties.

use std::collections::BTreeMap;

use contract::properties as keys;

use super::machine::Machine;
use super::pool::Pool;
use super::token::Token;

/// The word for a worker's role in forms.
const ROLE: &str = "worker";

/// What all workers of a cluster are told: its name, the address of its API, the hash of its authority, its gateway, DNS
/// and time servers, its SSH keys, and whatever else their form asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Site(pub BTreeMap<String, String>);

impl Site {
    /// The properties of one machine.
    pub(super) fn properties(&self, pool: &Pool, machine: &Machine, token: &Token) -> BTreeMap<String, String> {
        let mut properties = self.0.clone();
        let mut set = |key: &str, value: String| {
            if !value.is_empty() {
                properties.insert(key.to_owned(), value);
            }
        };
        let template = &machine.template;
        let labels = template.labels.iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>();
        let taints = template.taints.iter().cloned().collect::<Vec<_>>();
        set(keys::ROLE, ROLE.to_owned());
        set(keys::NODE_NAME, machine.name.clone());
        set(keys::NODE_POOL, pool.name.clone());
        set(keys::NODE_LABELS, labels.join(","));
        set(keys::NODE_TAINTS, taints.join(","));
        set(keys::JOIN_TOKEN, token.joined().expose().to_owned());
        if let (Some(address), Some(addresses)) = (machine.address, &pool.addresses) {
            set(keys::ADDRESS, format!("{address}/{}", addresses.prefix));
        }
        properties
    }
}

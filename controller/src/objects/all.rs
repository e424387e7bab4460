//! The list of all kinds, in the order of the reference.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt;

use super::catalog::Catalog;
use super::condition::{ConditionStatus, Reason};
use super::ip_pool::{IPPool, IPPoolReason};
use super::machine::{Machine, MachineReason};
use super::node_image::{NodeImage, NodeImageReason};
use super::node_pool::{NodePool, NodePoolReason};
use super::operation::{Operation, OperationReason};
use super::pool_address::PoolAddress;
use super::provider::{Provider, ProviderReason};
use super::tenant::{Tenant, TenantReason};
use super::tenant_cluster::{TenantCluster, TenantClusterReason};
use super::vm_class::VMClass;

pub struct Kind {
    /// Generated from the types.
    pub definition: CustomResourceDefinition,
    pub conditions: Vec<Described>,
    /// Reads an object and writes it again, for a test of its types. Fails if the object does not match the type.
    pub read: fn(serde_json::Value) -> Result<serde_json::Value, serde_json::Error>,
}

/// A condition of a kind.
pub struct Described {
    /// Its type.
    pub condition: &'static str,
    /// The meaning of the condition when it is `True`.
    pub meaning: &'static str,
    /// Each reason with the status that it sets, and its meaning.
    pub reasons: Vec<(&'static str, ConditionStatus, &'static str)>,
    /// The command or the field that helps for each of them. Empty if nothing has to be done.
    pub help: Vec<&'static str>,
}

pub fn all() -> Vec<Kind> {
    vec![
        kind::<Tenant>(described::<TenantReason>()),
        kind::<Catalog>(Vec::new()),
        kind::<Provider>(described::<ProviderReason>()),
        kind::<IPPool>(described::<IPPoolReason>()),
        kind::<PoolAddress>(Vec::new()),
        kind::<VMClass>(Vec::new()),
        kind::<NodeImage>(described::<NodeImageReason>()),
        kind::<TenantCluster>(described::<TenantClusterReason>()),
        kind::<NodePool>(described::<NodePoolReason>()),
        kind::<Machine>(described::<MachineReason>()),
        kind::<Operation>(described::<OperationReason>()),
    ]
}

fn kind<K>(conditions: Vec<Described>) -> Kind
where
    K: CustomResourceExt + serde::Serialize + serde::de::DeserializeOwned,
{
    let read = |object| serde_json::from_value::<K>(object).and_then(serde_json::to_value);
    Kind { definition: K::crd(), conditions, read }
}

fn described<R: Reason>() -> Vec<Described> {
    let described = |(condition, meaning): &(&'static str, &'static str)| {
        let reasons: Vec<R> = R::ALL.iter().copied().filter(|reason| reason.condition() == *condition).collect();
        Described {
            condition,
            meaning: meaning.trim(),
            reasons: reasons.iter().map(|reason| (reason.word(), reason.standing(), reason.meaning().trim())).collect(),
            help: reasons.iter().map(|reason| reason.help()).collect(),
        }
    };
    R::CONDITIONS.iter().map(described).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The condition, the word, the status and the help of each reason.
    fn helped() -> Vec<(&'static str, &'static str, ConditionStatus, &'static str)> {
        let of = |Described { condition, reasons, help, .. }: Described| {
            reasons.into_iter().zip(help).map(move |((word, standing, _), help)| (condition, word, standing, help))
        };
        all().into_iter().flat_map(|kind| kind.conditions).flat_map(of).collect()
    }

    #[test]
    fn reasons_of_false_conditions_name_what_helps() {
        let mut found = helped();
        // Those without a help that are False, and those with one that are not.
        found.retain(|(.., standing, help)| (*standing == ConditionStatus::False) == help.is_empty());
        let found: Vec<_> = found.into_iter().map(|(condition, word, ..)| (condition, word)).collect();
        // Nothing has to be done.
        assert_eq!(found, [("Progressing", "Idle"), ("Progressing", "Ended")]);
    }

    #[test]
    fn help_names_a_command_or_a_field() {
        for (.., help) in helped().into_iter().filter(|(.., help)| !help.is_empty()) {
            assert!(help.matches('`').count() >= 2 && help.len() < 128, "{help}");
        }
    }

    // The help of a cluster named objects that only the operator may read.
    #[test]
    fn help_of_tenants_names_what_they_may_read() {
        fn unreadable<R: Reason>() -> Vec<&'static str> {
            let names_one = |help: &&str| {
                ["providers", "ippools", "nodeimages", "tenants", "vmclasses"]
                    .iter()
                    .any(|kind| help.contains(&format!("kubectl describe {kind}")))
            };
            R::ALL.iter().map(|reason| reason.help()).filter(names_one).collect()
        }
        let of_tenants = [
            unreadable::<TenantClusterReason>(),
            unreadable::<NodePoolReason>(),
            unreadable::<MachineReason>(),
            unreadable::<OperationReason>(),
        ];
        assert_eq!(of_tenants.concat(), [""; 0]);
        assert!(!unreadable::<ProviderReason>().is_empty(), "the operator may read Providers");
    }
}

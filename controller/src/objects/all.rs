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
    let of = |condition: &str| {
        let reasons = R::ALL.iter().filter(|reason| reason.condition() == condition);
        reasons.map(|reason| (reason.word(), reason.standing(), reason.meaning().trim())).collect()
    };
    let described = |(condition, meaning): &(&'static str, &'static str)| Described {
        condition,
        meaning: meaning.trim(),
        reasons: of(condition),
    };
    R::CONDITIONS.iter().map(described).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The reasons without a help that are False, and those with one that are not.
    fn without_help<R: Reason>() -> Vec<(&'static str, &'static str)> {
        let is_wrong = |reason: &&R| (reason.standing() == ConditionStatus::False) == reason.help().is_empty();
        R::ALL.iter().filter(is_wrong).map(|reason| (reason.condition(), reason.word())).collect()
    }

    #[test]
    fn reasons_of_false_conditions_name_what_helps() {
        let found = [
            without_help::<TenantReason>(),
            without_help::<ProviderReason>(),
            without_help::<IPPoolReason>(),
            without_help::<NodeImageReason>(),
            without_help::<TenantClusterReason>(),
            without_help::<NodePoolReason>(),
            without_help::<MachineReason>(),
            without_help::<OperationReason>(),
        ];
        // Nothing has to be done.
        assert_eq!(found.concat(), [("Progressing", "Idle"), ("Progressing", "Ended")]);
    }

    #[test]
    fn help_names_a_command_or_a_field() {
        fn all<R: Reason>() -> Vec<&'static str> {
            R::ALL.iter().map(|reason| reason.help()).filter(|help| !help.is_empty()).collect()
        }
        let all = [
            all::<TenantReason>(),
            all::<ProviderReason>(),
            all::<IPPoolReason>(),
            all::<NodeImageReason>(),
            all::<TenantClusterReason>(),
            all::<NodePoolReason>(),
            all::<MachineReason>(),
            all::<OperationReason>(),
        ];
        for help in all.concat() {
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

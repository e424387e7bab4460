//! The claim of an address of a pool: its object is created.

use super::failure::Failure;
use super::kinds;
use super::objects::Objects;
use crate::objects::PoolAddress;

/// Claims an address: creates its object. The kinds of a former release want the pool's name before the address. A process uses
/// one kind of names for its whole term, so two claims of one address meet: the second gets [`Failure::Exists`].
pub async fn claim(objects: &dyn Objects, address: &PoolAddress) -> Result<(), Failure> {
    let mut address = address.clone();
    if objects.control_cluster().has_former_kinds {
        let name = address.metadata.name.take().unwrap_or_default();
        address.metadata.name = Some(format!("{}-{name}", address.spec.pool_ref.name));
    }
    kinds::create(objects, &address).await.map(drop)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::sync::Arc;

    use super::*;
    use crate::decisions::claimed;
    use crate::objects::{Claimant, Purpose};
    use crate::reach::in_memory::InMemory;
    use crate::reach::{ControlCluster, Fenced};
    use crate::term::Term;

    fn object(uid: &str) -> PoolAddress {
        let text = str::to_owned;
        let claimant = Claimant {
            kind: text("TenantCluster"),
            namespace: text("team-blue"),
            name: text("shop"),
            uid: text(uid),
            purpose: Purpose::ServiceVip,
            index: 1,
        };
        claimed("p", Ipv4Addr::new(10, 0, 0, 1), claimant)
    }

    #[tokio::test]
    async fn claim_uses_the_names_of_former_kinds() {
        let api = InMemory::default();
        for (has_former_kinds, name) in [(true, "p-10-0-0-1"), (false, "10-0-0-1")] {
            let own = ControlCluster { has_former_kinds, ..ControlCluster::default() };
            let fenced = Fenced::new(Arc::new(api.clone()), Term::unlimited("controller one")).of(own);
            claim(&fenced, &object("u")).await.unwrap();
            assert!(api.names("pooladdresses").contains(&name.to_owned()), "{:?}", api.names("pooladdresses"));
            assert!(matches!(claim(&fenced, &object("v")).await, Err(Failure::Exists)));
        }
    }
}

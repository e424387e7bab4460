//! Lists the content of a Catalog, and the names in a Tenant that do not exist.

use kube::ResourceExt;

use super::access::Access;
use super::limits::ResourceUsage;
use crate::objects::{
    AllowedProvider, CatalogSpec, IPPool, NodeImage, Provider, ProviderNetwork, Tenant, Used, VMClass, Zone,
};

/// The objects that operators offer to clusters.
#[derive(Clone, Debug, Default)]
pub struct Offer {
    pub providers: Vec<Provider>,
    pub pools: Vec<IPPool>,
    pub classes: Vec<VMClass>,
    pub images: Vec<NodeImage>,
}

/// The most names of a kind that a Catalog lists.
const MOST: usize = 256;

/// The Catalog of a namespace that a Tenant has.
pub fn catalog(tenant: &Tenant, access: &Access<'_>, offer: &Offer, used: ResourceUsage) -> CatalogSpec {
    let allowed = offer.providers.iter().filter(|provider| access.provider(provider).is_none());
    let providers = allowed.map(|provider| {
        let narrowed = access.narrowed(provider);
        let (zones, networks) = parts(&narrowed);
        AllowedProvider { name: provider.name_any(), zones, networks }
    });
    CatalogSpec {
        tenant: tenant.name_any(),
        providers: providers.collect(),
        ip_pools: names(&offer.pools, |name| {
            access.pool(name).is_none()
                && offer.providers.iter().all(|provider| access.closed_pool("", name, provider).is_none())
        }),
        vm_classes: names(&offer.classes, |name| access.class(name).is_none()),
        images: names(&offer.images, |name| access.image(name).is_none()),
        quota: tenant.spec.quota.clone().unwrap_or_default(),
        used: Used {
            clusters: used.clusters,
            nodes: used.nodes,
            processors: used.processors,
            memory_mib: used.memory_mib,
            addresses: used.addresses(),
        },
    }
}

/// The objects that a Tenant names and that do not exist.
pub fn missing_names(tenant: &Tenant, offer: &Offer) -> Vec<String> {
    let allow = &tenant.spec.allow;
    let lacking = |kind: &str, named: &[String], there: &[String]| -> Vec<String> {
        named.iter().filter(|name| !there.contains(name)).map(|name| format!("{kind} {name}")).collect()
    };
    let mut missing = Vec::new();
    for part in &allow.providers {
        let Some(provider) = offer.providers.iter().find(|provider| provider.name_any() == part.name) else {
            missing.push(format!("Provider {}", part.name));
            continue;
        };
        let (zones, networks) = parts(provider);
        let of_provider = [lacking("zone", &part.zones, &zones), lacking("network", &part.networks, &networks)];
        missing.extend(of_provider.concat().iter().map(|what| format!("{what} of the Provider {}", part.name)));
    }
    missing.extend(lacking("IPPool", &allow.ip_pools, &names(&offer.pools, |_| true)));
    missing.extend(lacking("VMClass", &allow.vm_classes, &names(&offer.classes, |_| true)));
    missing.extend(lacking("NodeImage", &allow.images, &names(&offer.images, |_| true)));
    missing
}

/// The names of a Provider's zones and networks.
fn parts(provider: &Provider) -> (Vec<String>, Vec<String>) {
    let vsphere = provider.spec.vsphere.iter();
    let zones = vsphere.clone().flat_map(|vsphere| &vsphere.zones).map(|Zone { name, .. }| name.clone());
    let networks = vsphere.flat_map(|vsphere| &vsphere.networks).map(|ProviderNetwork { name, .. }| name.clone());
    (zones.collect(), networks.collect())
}

fn names<K: ResourceExt>(all: &[K], is_meant: impl Fn(&str) -> bool) -> Vec<String> {
    all.iter().map(ResourceExt::name_any).filter(|name| is_meant(name)).take(MOST).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decisions::fixture::{class, cluster, image, pool, provider, tenant};
    use crate::objects::Quota;

    // Finding 25 of controller.md: tenants could not see the names that they may use.
    #[test]
    fn catalog_lists_only_what_the_namespace_may_use() {
        let mut blue = tenant("blue", &["team-blue"], &["blue"]);
        blue.spec.allow.providers[0].zones = vec!["b".to_owned()];
        blue.spec.quota = Some(Quota { nodes: Some(9), ..Quota::default() });
        let mut red = tenant("red", &["team-red"], &["leased"]);
        red.spec.allow.ip_pools = vec!["blue-nodes".to_owned()];
        let mut elsewhere = provider();
        elsewhere.metadata.name = Some("dc2".to_owned());
        let offer = Offer {
            providers: vec![provider(), elsewhere],
            pools: vec![pool()],
            classes: vec![VMClass::new("medium", class())],
            images: vec![image("kaas-tenant-0.2.0", "0.2.0")],
        };
        let all = [blue, red];
        let used = ResourceUsage { nodes: 3, ..ResourceUsage::of_cluster(&cluster()) };
        let listed = catalog(&all[0], &Access::of(&all, "team-blue"), &offer, used);
        let names = |names: &[&str]| -> Vec<String> { names.iter().map(|name| (*name).to_owned()).collect() };
        let dc1 = AllowedProvider { name: "dc1".to_owned(), zones: names(&["b"]), networks: names(&["blue"]) };
        assert_eq!((listed.tenant.as_str(), listed.providers), ("blue", vec![dc1]));
        assert_eq!((listed.ip_pools, listed.vm_classes), (Vec::new(), names(&["medium"])));
        assert_eq!(listed.images, names(&["kaas-tenant-0.2.0"]));
        assert_eq!((listed.quota.nodes, listed.used.nodes, listed.used.addresses), (Some(9), 3, 6));
        let listed = catalog(&all[1], &Access::of(&all, "team-red"), &offer, used);
        assert_eq!((&listed.providers[0].networks, listed.ip_pools), (&names(&["leased"]), names(&["blue-nodes"])));
        assert_eq!(missing_names(&all[1], &offer), [""; 0]);
        let missing = missing_names(&all[0], &Offer { providers: vec![provider()], ..Offer::default() });
        assert_eq!(missing, [""; 0], "it names no pool, class or image");
        assert_eq!(missing_names(&all[1], &Offer::default()), ["Provider dc1", "IPPool blue-nodes"]);
    }
}

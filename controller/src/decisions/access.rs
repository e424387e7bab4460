//! Decides what a namespace may use, by the Tenants and the Providers. `objects/tenant.rs` has the rules. Knows no quota.

use std::net::Ipv4Addr;

use kube::ResourceExt;

use super::addresses::ranges;
use super::obstacle::Obstacle;
use crate::objects::{
    AUTO, AllowedProvider, FromNamespaces, IPPool, Network, Provider, Tenant, TenantCluster, TenantClusterReason,
};

/// The Tenant that has a namespace: the one that holds it already, else the oldest that lists it.
pub fn tenant_of<'t>(tenants: &'t [Tenant], namespace: &str) -> Option<&'t Tenant> {
    let listing = tenants.iter().filter(|tenant| has(&tenant.spec.namespaces, namespace));
    listing.min_by_key(|tenant| {
        let holds = tenant.status.as_ref().is_some_and(|status| has(&status.namespaces, namespace));
        (!holds, tenant.metadata.creation_timestamp.clone(), tenant.name_any())
    })
}

/// The namespaces that a Tenant lists: those that it has, and those that another one has.
pub fn namespaces_of(tenants: &[Tenant], tenant: &Tenant) -> (Vec<String>, Vec<String>) {
    let is_own = |name: &String| tenant_of(tenants, name).is_some_and(|of| of.name_any() == tenant.name_any());
    tenant.spec.namespaces.iter().cloned().partition(is_own)
}

fn has(names: &[String], name: &str) -> bool {
    names.iter().any(|one| one == name)
}

/// Decides what a namespace may use.
#[derive(Clone, Copy, Debug)]
pub struct Access<'t> {
    tenants: &'t [Tenant],
    namespace: &'t str,
    own: Option<&'t Tenant>,
}

/// The zones, network and class of nodes.
pub struct NodePlace<'n> {
    pub zones: &'n [String],
    pub network: &'n str,
    pub class: &'n str,
}

impl<'t> Access<'t> {
    pub fn of(tenants: &'t [Tenant], namespace: &'t str) -> Self {
        Self { tenants, namespace, own: tenant_of(tenants, namespace) }
    }

    /// The Tenant of the namespace.
    pub fn tenant(&self) -> Option<&'t Tenant> {
        self.own
    }

    fn refused(&self, words: &str) -> Obstacle {
        let words = format!("the namespace {} may not use {words}: ask the operator", self.namespace);
        Obstacle::new(TenantClusterReason::NamespaceNotAllowed, words)
    }

    /// The refusal of a name that the Tenant does not list.
    fn unlisted(&self, tenant: &Tenant, what: &str) -> Obstacle {
        self.refused(&format!("{what}, which the Tenant {} does not list", tenant.name_any()))
    }

    /// Why the namespace may not use a Provider, if it may not.
    pub fn provider(&self, provider: &Provider) -> Option<Obstacle> {
        let name = provider.name_any();
        if let Some(tenant) = self.own {
            return part_of(tenant, &name).is_none().then(|| self.unlisted(tenant, &format!("the Provider {name}")));
        }
        let allowed = &provider.spec.allowed_namespaces;
        if allowed.from == FromNamespaces::All || has(&allowed.names, self.namespace) {
            return None;
        }
        Some(self.refused(&format!("the Provider {name}, which does not list it in allowedNamespaces")))
    }

    fn zone(&self, provider: &str, zone: &str) -> Option<Obstacle> {
        let zones = &part_of(self.own?, provider)?.zones;
        self.outside(zones, zone, &format!("the zone {zone} of the Provider {provider}"))
    }

    fn network(&self, provider: &str, network: &str) -> Option<Obstacle> {
        let what = format!("the network {network} of the Provider {provider}");
        self.closed(&what, network, |tenant| {
            part_of(tenant, provider).map(|part| part.networks.as_slice()).unwrap_or_default()
        })
    }

    pub(super) fn pool(&self, pool: &str) -> Option<Obstacle> {
        self.closed(&format!("the IPPool {pool}"), pool, |tenant| tenant.spec.allow.ip_pools.as_slice())
    }

    /// As [`Self::pool`]. A pool that serves closed networks alone is closed with them, unless the own Tenant lists it.
    pub(super) fn closed_pool(&self, what: &str, pool: &str, provider: &Provider) -> Option<Obstacle> {
        let closed = self.closed(what, pool, |tenant| tenant.spec.allow.ip_pools.as_slice());
        closed.or_else(|| {
            let lists = |tenant: &Tenant| has(&tenant.spec.allow.ip_pools, pool);
            let is_closed = !self.own.is_some_and(lists) && self.serves_closed(provider, pool);
            is_closed.then(|| self.refused(&format!("{what}, whose network belongs to a Tenant")))
        })
    }

    /// Whether a pool serves networks of the Provider, and all of them are closed.
    fn serves_closed(&self, provider: &Provider, pool: &str) -> bool {
        let name = provider.name_any();
        let lists =
            |tenant: &Tenant, network: &str| part_of(tenant, &name).is_some_and(|part| has(&part.networks, network));
        let all = provider.spec.vsphere.iter().flat_map(|vsphere| &vsphere.networks);
        let served = all.filter(|network| network.pool_ref.as_ref().is_some_and(|own| own.name == pool));
        let served: Vec<&str> = served.map(|network| network.name.as_str()).collect();
        let is_closed = |network: &str| {
            !self.lists_network(&name, network) && self.tenants.iter().any(|tenant| lists(tenant, network))
        };
        !served.is_empty() && served.into_iter().all(is_closed)
    }

    /// As [`Self::pool`], for the pool of a network: the own list of pools need not name it.
    fn pool_of_network(&self, pool: &str) -> Option<Obstacle> {
        let lists = |tenant: &Tenant| has(&tenant.spec.allow.ip_pools, pool);
        let is_open = self.own.is_some_and(lists) || !self.tenants.iter().any(lists);
        (!is_open).then(|| self.refused(&format!("the IPPool {pool}, which belongs to a Tenant")))
    }

    /// Why the namespace may not use a class of VMs, if it may not.
    pub fn class(&self, class: &str) -> Option<Obstacle> {
        let classes = &self.own?.spec.allow.vm_classes;
        if class == AUTO { None } else { self.outside(classes, class, &format!("the VMClass {class}")) }
    }

    /// Why the namespace may not use an image, if it may not.
    pub fn image(&self, image: &str) -> Option<Obstacle> {
        self.outside(&self.own?.spec.allow.images, image, &format!("the NodeImage {image}"))
    }

    /// The rule of zones, classes and images: a list of the own Tenant allows only its names, and an empty one allows all.
    fn outside(&self, allowed: &[String], name: &str, what: &str) -> Option<Obstacle> {
        let is_allowed = allowed.is_empty() || has(allowed, name);
        self.own.filter(|_| !is_allowed).map(|tenant| self.unlisted(tenant, what))
    }

    /// The rule of networks and pools: a name that another Tenant lists is closed, unless the own Tenant lists it too.
    fn closed(&self, what: &str, name: &str, listed: impl Fn(&Tenant) -> &[String]) -> Option<Obstacle> {
        let lists = |tenant: &Tenant| has(listed(tenant), name);
        match self.own {
            Some(tenant) if lists(tenant) => None,
            Some(tenant) if !listed(tenant).is_empty() => Some(self.unlisted(tenant, what)),
            // The other Tenant is not named: this team must not learn its name.
            _ => self.tenants.iter().any(lists).then(|| self.refused(&format!("{what}, which belongs to a Tenant"))),
        }
    }

    /// Whether the own Tenant lists a network.
    fn lists_network(&self, provider: &str, network: &str) -> bool {
        let part = self.own.and_then(|tenant| part_of(tenant, provider));
        part.is_some_and(|part| has(&part.networks, network))
    }

    /// Why the namespace may not have nodes on a Provider, if it may not.
    pub fn nodes(&self, provider: &Provider, place: &NodePlace<'_>) -> Option<Obstacle> {
        let name = provider.name_any();
        let zones = place.zones.iter().filter_map(|zone| self.zone(&name, zone));
        let all = self.provider(provider).into_iter().chain(zones);
        let all = all.chain(self.network(&name, place.network)).chain(self.class(place.class));
        Obstacle::of_all(all.collect())
    }

    /// Why the namespace may not use what a cluster names, if it may not. `of_nodes` is the pool of its nodes' addresses, `all` are
    /// all pools.
    pub fn cluster(
        &self,
        cluster: &TenantCluster,
        provider: &Provider,
        (of_nodes, all): (Option<&IPPool>, &[IPPool]),
    ) -> Option<Obstacle> {
        let spec = &cluster.spec;
        let zones = &spec.control_plane.zones;
        let place = NodePlace { zones, network: &spec.network.name, class: &spec.control_plane.vm_class };
        let nodes = self.nodes(provider, &place);
        // The pool of a listed network serves its nodes. That of another network may be closed.
        let is_listed = self.lists_network(&provider.name_any(), &spec.network.name);
        let own_pool = of_nodes.map(ResourceExt::name_any);
        let of_nodes = of_nodes.filter(|_| !is_listed).and_then(|pool| self.pool_of_network(&pool.name_any()));
        // A named address is taken from the pool that has it in its ranges, as if the cluster named the pool.
        let of_addresses = pools_of_addresses(&spec.network, all).filter(|pool| own_pool.as_ref() != Some(pool));
        let of_addresses = of_addresses
            .filter_map(|pool| self.closed_pool(&format!("an address of the IPPool {pool}"), &pool, provider));
        let vips = spec.network.service_vips.as_ref().and_then(|vips| vips.pool_ref.as_ref());
        let mut named: Vec<&str> = spec.network.endpoint.pool_ref.iter().chain(vips).map(|pool| &*pool.name).collect();
        named.dedup();
        let named =
            named.into_iter().filter_map(|pool| self.closed_pool(&format!("the IPPool {pool}"), pool, provider));
        let pools = named.chain(of_nodes).chain(of_addresses);
        let image = spec.image.as_deref().and_then(|image| self.image(image));
        Obstacle::of_all(nodes.into_iter().chain(pools).chain(image).collect())
    }

    /// A Provider with only those zones and networks that the namespace may use, for nodes that are placed.
    pub fn narrowed(&self, provider: &Provider) -> Provider {
        let (mut narrowed, name) = (provider.clone(), provider.name_any());
        if let Some(vsphere) = &mut narrowed.spec.vsphere {
            vsphere.zones.retain(|zone| self.zone(&name, &zone.name).is_none());
            vsphere.networks.retain(|network| self.network(&name, &network.name).is_none());
        }
        narrowed
    }
}

/// The names of the pools with an address in their ranges that a cluster names itself.
fn pools_of_addresses(network: &Network, pools: &[IPPool]) -> impl Iterator<Item = String> {
    let number = |text: &str| text.parse::<Ipv4Addr>().map(u32::from).ok();
    let endpoint = network.endpoint.address.iter().map(|address| (address, address));
    let of_services = network.service_vips.iter().filter_map(|vips| vips.ranges.as_ref()).flatten();
    let named = endpoint.chain(of_services.map(|range| (&range.first, &range.last)));
    let named: Vec<(u32, u32)> = named.filter_map(|(first, last)| Some((number(first)?, number(last)?))).collect();
    let has_one = move |pool: &&IPPool| {
        // An unreadable pool is reported where it is used.
        let own = ranges(&pool.spec).unwrap_or_default();
        own.iter().any(|(from, to)| named.iter().any(|(first, last)| first <= to && from <= last))
    };
    pools.iter().filter(has_one).map(ResourceExt::name_any)
}

/// The entry of a Tenant for a Provider.
fn part_of<'t>(tenant: &'t Tenant, provider: &str) -> Option<&'t AllowedProvider> {
    tenant.spec.allow.providers.iter().find(|part| part.name == provider)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decisions::fixture::{cluster, pool, provider, tenant};
    use crate::objects::{AddressRange, Reference, ServiceVips, TenantStatus};

    fn words(tenants: &[Tenant], namespace: &str, change: impl FnOnce(&mut TenantCluster)) -> String {
        let mut cluster = cluster();
        change(&mut cluster);
        let pools = [pool()];
        let found = Access::of(tenants, namespace).cluster(&cluster, &provider(), (pools.first(), &pools[..]));
        found.map(|obstacle| obstacle.message).unwrap_or_default()
    }

    // Finding 3 of controller.md: a network of one team was open to all namespaces of the Provider.
    #[test]
    fn listed_network_is_closed_to_other_namespaces() {
        let blue = tenant("blue", &["team-blue"], &["blue"]);
        assert_eq!(words(&[], "team-blue", |_| ()), "", "without a Tenant, allowedNamespaces decides");
        assert_eq!(words(std::slice::from_ref(&blue), "team-blue", |_| ()), "");
        let mut open = provider();
        open.spec.allowed_namespaces.from = FromNamespaces::All;
        let all = [blue, tenant("red", &["team-red"], &[])];
        let pools = [pool()];
        for namespace in ["team-red", "team-none"] {
            let found = Access::of(&all, namespace).cluster(&cluster(), &open, (pools.first(), &pools[..])).unwrap();
            assert_eq!(found.reason, TenantClusterReason::NamespaceNotAllowed);
            let is_closed = found.message.contains("the network blue of the Provider dc1, which belongs to a Tenant");
            assert!(is_closed && !found.message.contains("Tenant blue"), "{}", found.message);
        }
    }

    #[test]
    fn listed_pool_is_closed_unless_network_is_listed() {
        let mut red = tenant("red", &["team-red"], &[]);
        red.spec.allow.ip_pools = vec!["blue-nodes".to_owned()];
        let all = |blue: Tenant| [red.clone(), blue];
        let without = words(&all(tenant("blue", &["team-blue"], &[])), "team-blue", |it| {
            it.spec.network.service_vips = None;
        });
        assert!(without.contains("the IPPool blue-nodes, which belongs to a Tenant"), "{without}");
        let listed = all(tenant("blue", &["team-blue"], &["blue"]));
        assert_eq!(words(&listed, "team-blue", |it| it.spec.network.service_vips = None), "");
        assert!(words(&listed, "team-blue", |_| ()).contains("the IPPool blue-nodes"), "its Services name it");
        let mut other = tenant("blue", &["team-blue"], &[]);
        other.spec.allow.ip_pools = vec!["vips".to_owned()];
        let own = words(&[other], "team-blue", |it| it.spec.network.service_vips = None);
        assert_eq!(own, "", "an own list of pools need not name that of an open network");
    }

    // Finding 3 of controller.md: an address in the ranges of another team's pool was available by its number.
    #[test]
    fn named_address_of_a_closed_pool_is_refused() {
        let mut vips = pool();
        vips.metadata.name = Some("red-vips".to_owned());
        vips.spec.ranges[0].first = "192.168.10.100".to_owned();
        vips.spec.ranges[0].last = "192.168.10.119".to_owned();
        let pools = [pool(), vips];
        let mut red = tenant("red", &["team-red"], &[]);
        red.spec.allow.ip_pools = vec!["red-vips".to_owned()];
        let mut blue = tenant("blue", &["team-blue"], &[]);
        let why = |tenants: &[Tenant], endpoint: &str, named: Option<(&str, &str)>| {
            let mut cluster = cluster();
            cluster.spec.network.endpoint.address = Some(endpoint.to_owned());
            let range = |(first, last): (&str, &str)| AddressRange { first: first.to_owned(), last: last.to_owned() };
            let ranges = named.map(|named| vec![range(named)]);
            cluster.spec.network.service_vips = Some(ServiceVips { ranges, pool_ref: None, count: None });
            let found = Access::of(tenants, "team-blue").cluster(&cluster, &provider(), (pools.first(), &pools[..]));
            found.map(|obstacle| obstacle.message).unwrap_or_default()
        };
        let all = [red.clone(), blue.clone()];
        assert_eq!(why(&all, "192.168.10.10", Some(("192.168.10.60", "192.168.10.99"))), "");
        assert_eq!(why(&all, "192.168.10.25", None), "", "the pool of its nodes");
        let refused = "an address of the IPPool red-vips, which belongs to a Tenant";
        let endpoint = why(&all, "192.168.10.100", None);
        assert!(endpoint.contains(refused), "{endpoint}");
        let services = why(&all, "192.168.10.10", Some(("192.168.10.90", "192.168.10.130")));
        assert!(services.contains(refused), "{services}");
        assert_eq!(why(&all[1..], "192.168.10.100", None), "", "no Tenant lists the pool");
        blue.spec.allow.ip_pools = vec!["blue-vips".to_owned()];
        let unlisted = why(std::slice::from_ref(&blue), "192.168.10.100", None);
        assert!(unlisted.contains("red-vips, which the Tenant blue does not list"), "{unlisted}");
        blue.spec.allow.ip_pools.push("red-vips".to_owned());
        assert_eq!(why(&[red, blue], "192.168.10.100", None), "", "both list it");
    }

    // Finding 3 of controller.md: the pool of a closed network was open, so others could take all of its addresses.
    #[test]
    fn pool_of_a_closed_network_is_closed() {
        let mut all = [tenant("red", &["team-red"], &["red"]), tenant("blue", &["team-blue"], &["blue"])];
        let mut with_red = provider();
        let networks = &mut with_red.spec.vsphere.as_mut().unwrap().networks;
        let mut other = networks[0].clone();
        (other.name, other.pool_ref) = ("red".to_owned(), Some(Reference::to("red-nodes")));
        networks.push(other);
        let mut cluster = cluster();
        cluster.spec.network.service_vips.as_mut().unwrap().pool_ref = Some(Reference::to("red-nodes"));
        let none: [IPPool; 0] = [];
        let why = |tenants: &[Tenant]| {
            let found = Access::of(tenants, "team-blue").cluster(&cluster, &with_red, (None, &none[..]));
            found.map(|obstacle| obstacle.message).unwrap_or_default()
        };
        let refused = why(&all);
        assert!(refused.contains("the IPPool red-nodes, whose network belongs to a Tenant"), "{refused}");
        assert_eq!(why(&all[1..]), "", "no Tenant lists the network");
        all[1].spec.allow.ip_pools = vec!["red-nodes".to_owned()];
        assert_eq!(why(&all), "", "the operator lets it have addresses there");
    }

    #[test]
    fn tenant_allows_only_what_it_lists() {
        let mut blue = tenant("blue", &["team-blue"], &["blue"]);
        blue.spec.allow.providers[0].zones = vec!["a".to_owned()];
        blue.spec.allow.vm_classes = vec!["small".to_owned()];
        blue.spec.allow.images = vec!["kaas-tenant-0.2.0".to_owned()];
        blue.spec.allow.ip_pools = vec!["blue-nodes".to_owned()];
        let of = |change: &dyn Fn(&mut TenantCluster)| words(std::slice::from_ref(&blue), "team-blue", change);
        assert_eq!(of(&|_| ()), "");
        type Change<'a> = &'a dyn Fn(&mut TenantCluster);
        let cases: [(&str, Change<'_>); 5] = [
            ("the zone b of the Provider dc1", &|it| it.spec.control_plane.zones = vec!["b".to_owned()]),
            ("the network green of the Provider dc1", &|it| it.spec.network.name = "green".to_owned()),
            ("the VMClass medium", &|it| it.spec.control_plane.vm_class = "medium".to_owned()),
            ("the NodeImage kaas-tenant-0.3.0", &|it| it.spec.image = Some("kaas-tenant-0.3.0".to_owned())),
            ("the IPPool other", &|it| {
                it.spec.network.endpoint.pool_ref = Some(Reference::to("other"));
            }),
        ];
        for (what, change) in cases {
            let found = of(change);
            assert!(found.contains(&format!("{what}, which the Tenant blue does not list")), "{found}");
        }
        blue.spec.allow.providers[0].name = "dc2".to_owned();
        let found = words(&[blue.clone()], "team-blue", |_| ());
        assert!(found.contains("the Provider dc1, which the Tenant blue does not list"), "allowedNamespaces: {found}");
        blue.spec.allow.providers[0].name = "dc1".to_owned();
        let narrowed = Access::of(&[blue], "team-blue").narrowed(&provider());
        let vsphere = narrowed.spec.vsphere.unwrap();
        assert_eq!((vsphere.zones.len(), vsphere.networks.len()), (1, 1), "nodes are spread over allowed zones only");
    }

    #[test]
    fn namespace_stays_with_the_tenant_that_holds_it() {
        let owner = |all: &[Tenant]| tenant_of(all, "team-blue").map(ResourceExt::name_any);
        let mut all = [tenant("b", &["team-blue"], &[]), tenant("a", &["team-blue"], &[])];
        assert_eq!(owner(&all).as_deref(), Some("a"), "none holds it: age, then name");
        let namespaces = vec!["team-blue".to_owned()];
        all[0].status = Some(TenantStatus { namespaces, ..TenantStatus::default() });
        assert_eq!(owner(&all).as_deref(), Some("b"), "a later claim gets nothing");
        all[0].spec.namespaces = vec!["team-other".to_owned()];
        assert_eq!(owner(&all).as_deref(), Some("a"), "until it is given up");
        assert_eq!(tenant_of(&all, "team-red").map(ResourceExt::name_any), None);
    }
}

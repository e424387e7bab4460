//! The Secrets of a cluster in its namespace: those in its spec, and its kubeconfig for users. `keys.rs` has the keys.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::time::UNIX_EPOCH;

use contract::kubeconfig::HANDED_OVER_HOURS;
use contract::ports;
use fleet::nodes::Credentials;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::rbac::v1::{PolicyRule, Role};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube::api::ObjectMeta;
use serde_json::json;
use uuid::Uuid;
use zeroize::Zeroizing;

use super::Reconciler;
use crate::context::{Attempt, ReconcileError};
use crate::decisions::{
    CLUSTER, CONSOLE_PASSWORD_HASH, KUBECONFIG_TYPE, LOGIN, Secrets, former_keys_secret, is_due_after, is_input,
    is_own_secret, keys_secret, kubeconfig_secret, needed_secrets, owner,
};
use crate::objects::TenantCluster;
use crate::reach::{Collection, Failure, kinds};

/// The beginning of the users of kubeconfigs that are handed over. Each has a ClusterRoleBinding of its name in the tenant cluster.
const USERS: &str = "kaas:kubeconfig:";
/// The key of the kubeconfig in its Secret, and the label of that Secret, as in Cluster API.
pub(super) const KUBECONFIG: &str = "value";
const CLUSTER_NAME: &str = "cluster.x-k8s.io/cluster-name";

/// A kubeconfig that the controller wrote for users.
struct HandedOver {
    user: String,
    ends: Option<Time>,
}

impl HandedOver {
    /// `None` if it does not lead to the cluster, or its user is another one: earlier versions wrote the deployer's.
    fn read(cluster: &TenantCluster, secret: &Secret) -> Option<Self> {
        let text = text(secret, KUBECONFIG).filter(|text| leads_to(cluster, text))?;
        let credentials = Credentials::parse(&text).ok()?;
        let user = credentials.user().filter(|user| user.starts_with(USERS))?;
        Some(Self { user, ends: ends(&credentials) })
    }

    fn is_due(&self, now: &Time) -> bool {
        is_due_after(HANDED_OVER_HOURS, self.ends.as_ref(), now)
    }
}

/// Differs after each write.
fn version(secret: &Secret) -> String {
    let of = |text: Option<&String>| text.cloned().unwrap_or_default();
    format!("{}/{}", of(secret.metadata.uid.as_ref()), of(secret.metadata.resource_version.as_ref()))
}

/// When credentials expire. `None` if it is unknown.
pub(super) fn ends(credentials: &Credentials) -> Option<Time> {
    let since = credentials.ends()?.duration_since(UNIX_EPOCH).ok()?;
    Timestamp::from_second(i64::try_from(since.as_secs()).ok()?).ok().map(Time)
}

impl Reconciler<'_> {
    pub(super) async fn secret(&self, cluster: &TenantCluster, name: &str) -> Result<Option<Secret>, ReconcileError> {
        let found = kinds::find::<Secret>(self.objects, cluster.namespace().as_deref(), name).await;
        found.attempting(&format!("reading the Secret {name}"))
    }

    /// The keys of each existing Secret that the spec names and that may be read, and the values.
    pub(super) async fn named_secrets(
        &self,
        cluster: &TenantCluster,
    ) -> Result<(BTreeMap<String, BTreeSet<String>>, Secrets), ReconcileError> {
        let (mut keys, mut found) = (BTreeMap::new(), BTreeMap::new());
        for needed in needed_secrets(cluster) {
            let secret = self.secret(cluster, &needed.name).await?;
            if let Some(secret) = secret.filter(|secret| is_input(secret.type_.as_deref(), &needed, cluster)) {
                keys.insert(needed.name.clone(), secret.data.iter().flat_map(|data| data.keys().cloned()).collect());
                found.insert(needed.name, secret);
            }
        }
        let value = |name: &str, key: &str| text(found.get(name)?, key);
        let console = cluster.spec.site.console_password_ref.as_ref();
        let backup = cluster.spec.backup.as_ref().and_then(|backup| backup.credentials_ref.as_ref());
        let secrets = Secrets {
            console_password_hash: console.and_then(|it| value(&it.name, CONSOLE_PASSWORD_HASH)),
            backup: backup.and_then(|it| value(&it.name, LOGIN[0]).zip(value(&it.name, LOGIN[1]))),
            versions: found.iter().map(|(name, secret)| (name.clone(), version(secret))).collect(),
        };
        Ok((keys, secrets))
    }

    /// Whether users can read a kubeconfig that has not expired.
    pub(super) async fn is_handed_over(&self, cluster: &TenantCluster) -> Result<bool, ReconcileError> {
        let ends = match self.has_unmoved_keys(cluster).await? {
            true => self.own_kubeconfig(cluster).await?.and_then(|own| own.ends),
            false => self.handed_over(cluster).await?.and_then(|given| given.ends),
        };
        Ok(ends.is_some_and(|ends| ends > self.clock.time()))
    }

    /// Whether the kubeconfig that users read is missing, or has to be renewed.
    pub(super) async fn wants_handed_over(&self, cluster: &TenantCluster) -> Result<bool, ReconcileError> {
        if self.has_unmoved_keys(cluster).await? {
            return Ok(false);
        }
        Ok(self.handed_over(cluster).await?.is_none_or(|given| given.is_due(&self.clock.time())))
    }

    /// The kubeconfig that users read, if the controller wrote it: others who may write Secrets can replace it.
    async fn handed_over(&self, cluster: &TenantCluster) -> Result<Option<HandedOver>, ReconcileError> {
        let secret = self.secret(cluster, &kubeconfig_secret(&cluster.name_any())).await?;
        Ok(secret.filter(|secret| is_own_secret(secret, cluster)).and_then(|secret| HandedOver::read(cluster, &secret)))
    }

    /// Stores the controller's own kubeconfig, and renews the one for users if it is due. False if a Secret of this name was not
    /// made for this cluster: it stays.
    pub(super) async fn hand_over(&self, cluster: &TenantCluster, kubeconfig: &str) -> Result<bool, ReconcileError> {
        if self.has_unmoved_keys(cluster).await? {
            let there = self.secret(cluster, &kubeconfig_secret(&cluster.name_any())).await?;
            if there.as_ref().is_some_and(|there| !is_own_secret(there, cluster)) {
                return Ok(false);
            }
            return self.write_kubeconfig(cluster, there.as_ref(), kubeconfig).await.map(|()| true);
        }
        self.keep_kubeconfig(cluster, kubeconfig).await?;
        self.renew_handed_over(cluster, kubeconfig).await
    }

    /// Renews the kubeconfig for users with the controller's own one, if it is due. False if a Secret of this name was not made for
    /// this cluster: it stays.
    pub(super) async fn renew_handed_over(&self, cluster: &TenantCluster, own: &str) -> Result<bool, ReconcileError> {
        if self.has_unmoved_keys(cluster).await? {
            return Ok(true);
        }
        let name = kubeconfig_secret(&cluster.name_any());
        let there = self.secret(cluster, &name).await?;
        if there.as_ref().is_some_and(|there| !is_own_secret(there, cluster)) {
            return Ok(false);
        }
        let before = there.as_ref().and_then(|there| HandedOver::read(cluster, there));
        if before.as_ref().is_some_and(|before| !before.is_due(&self.clock.time())) {
            return Ok(true);
        }
        self.make_reader(cluster).await?;
        // The binding of a user is made once. An operator removes it to revoke the kubeconfig, and renewals keep it removed.
        let makes = before.is_none();
        let user = before.map_or_else(|| format!("{USERS}{}", Uuid::new_v4().simple()), |before| before.user);
        let issued = match self.places.issue(own, &user, makes).await {
            Ok(issued) => issued,
            Err(error) => {
                log::warn!("the kubeconfig of {} cannot be renewed yet: {error:#}", cluster.name_any());
                return Ok(true);
            }
        };
        self.write_kubeconfig(cluster, there.as_ref(), &issued).await.map(|()| true)
    }

    async fn write_kubeconfig(
        &self,
        cluster: &TenantCluster,
        there: Option<&Secret>,
        kubeconfig: &str,
    ) -> Result<(), ReconcileError> {
        let (name, attempt) = (kubeconfig_secret(&cluster.name_any()), "writing the kubeconfig's Secret");
        let data: BTreeMap<String, ByteString> =
            [(KUBECONFIG.to_owned(), ByteString(kubeconfig.as_bytes().to_vec()))].into();
        if let Some(there) = there {
            let part = json!({"metadata": {"resourceVersion": there.metadata.resource_version}, "data": data});
            let of = Collection::of::<Secret>(cluster.namespace().as_deref());
            return self.objects.patch(&of, &name, &part).await.map(drop).attempting(attempt);
        }
        let mut metadata = metadata(cluster, name);
        metadata.labels.get_or_insert_default().insert(CLUSTER_NAME.to_owned(), cluster.name_any());
        let type_ = Some(KUBECONFIG_TYPE.to_owned());
        let secret = Secret { metadata, type_, data: Some(data), ..Secret::default() };
        kinds::create(self.objects, &secret).await.map(drop).attempting(attempt)
    }

    /// Creates the Role that allows to read the Secret with the kubeconfig, and nothing else. It has the name of the Secret. Bindings
    /// to it are made elsewhere.
    async fn make_reader(&self, cluster: &TenantCluster) -> Result<(), ReconcileError> {
        let name = kubeconfig_secret(&cluster.name_any());
        let rule = PolicyRule {
            api_groups: Some(vec![String::new()]),
            resources: Some(vec!["secrets".to_owned()]),
            resource_names: Some(vec![name.clone()]),
            verbs: vec!["get".to_owned()],
            ..PolicyRule::default()
        };
        let role = Role { metadata: metadata(cluster, name), rules: Some(vec![rule]) };
        match kinds::create(self.objects, &role).await {
            Err(Failure::Exists) => Ok(()),
            made => made.map(drop).attempting("creating the Role to read the kubeconfig"),
        }
    }

    /// The names of Secrets that were made for a cluster and are not being deleted. A foreign finalizer on one does not delay the
    /// cluster.
    pub(super) async fn own_secrets(&self, cluster: &TenantCluster) -> Result<Vec<String>, ReconcileError> {
        let mut own = Vec::new();
        for name in [kubeconfig_secret(&cluster.name_any()), former_keys_secret(&cluster.name_any())] {
            let is_own =
                |secret: Secret| secret.metadata.deletion_timestamp.is_none() && is_own_secret(&secret, cluster);
            if self.secret(cluster, &name).await?.is_some_and(is_own) {
                own.push(name);
            }
        }
        if self.has_keys(cluster).await? {
            own.push(keys_secret(cluster));
        }
        Ok(own)
    }

    pub(super) async fn remove_secret(&self, cluster: &TenantCluster, name: &str) -> Result<(), ReconcileError> {
        if name == keys_secret(cluster) {
            return self.remove_keys(cluster).await;
        }
        match self.objects.delete(&Collection::of::<Secret>(cluster.namespace().as_deref()), name).await {
            Err(Failure::Missing) => Ok(()),
            removed => removed.attempting(&format!("removing the Secret {name}")),
        }
    }
}

fn metadata(cluster: &TenantCluster, name: String) -> ObjectMeta {
    ObjectMeta {
        name: Some(name),
        namespace: cluster.namespace(),
        labels: Some([(CLUSTER.to_owned(), cluster.name_any())].into()),
        owner_references: Some(vec![owner(cluster)]),
        ..ObjectMeta::default()
    }
}

/// Whether a kubeconfig leads to the cluster's API: its endpoint or one of its control-plane nodes. Its only CA must be that with
/// which the cluster has formed.
pub(super) fn leads_to(cluster: &TenantCluster, kubeconfig: &str) -> bool {
    let Ok(credentials) = Credentials::handed_on(kubeconfig) else { return false };
    let is_own = |server: SocketAddrV4| server.port() == ports::API && is_of(cluster, *server.ip());
    let authority = cluster.deployment().and_then(|deployment| deployment.record.ca_fingerprint);
    credentials.address().is_some_and(is_own)
        && authority.is_some_and(|formed| credentials.authorities().is_ok_and(|known| known == [formed]))
}

/// Whether an address is the cluster's endpoint or that of one of its control-plane nodes.
pub(super) fn is_of(cluster: &TenantCluster, address: Ipv4Addr) -> bool {
    let Some(status) = &cluster.status else { return false };
    let endpoint = status.resolved.as_ref().and_then(|resolved| resolved.endpoint.as_ref()?.parse().ok());
    let nodes = status.deployment.iter().flat_map(|deployment| &deployment.record.nodes).map(|node| node.address);
    endpoint.into_iter().chain(nodes).any(|own| own == address)
}

pub(super) fn text(secret: &Secret, key: &str) -> Option<Zeroizing<String>> {
    let value = secret.data.as_ref()?.get(key)?;
    String::from_utf8(value.0.clone()).ok().map(Zeroizing::new)
}

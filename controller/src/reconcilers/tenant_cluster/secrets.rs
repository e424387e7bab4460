//! The Secrets of a cluster: those in its spec, its keys, and its kubeconfig for others.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddrV4};

use contract::deployer::PrivateKey;
use contract::ports;
use fleet::nodes::Credentials;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
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
    CLUSTER, CONSOLE_PASSWORD_HASH, KEYS_TYPE, KUBECONFIG_TYPE, Keys, KeysSeen, LOGIN, Secrets, is_own_secret,
    keys_secret, kubeconfig_secret, needed_secrets, owner,
};
use crate::objects::TenantCluster;
use crate::reach::{Collection, Failure, kinds};

/// The keys of the deployer's key and of the deployment secret in their Secret.
const KEY: &str = "key.pem";
const DEPLOYMENT_SECRET: &str = "deployment-secret";
/// The key of the kubeconfig in its Secret, and the label of that Secret, as in Cluster API.
const KUBECONFIG: &str = "value";
const CLUSTER_NAME: &str = "cluster.x-k8s.io/cluster-name";

impl Reconciler<'_> {
    async fn secret(&self, cluster: &TenantCluster, name: &str) -> Result<Option<Secret>, ReconcileError> {
        let found = kinds::find::<Secret>(self.objects, cluster.namespace().as_deref(), name).await;
        found.attempting(&format!("reading the Secret {name}"))
    }

    /// The keys of each existing Secret that the spec names, and the values.
    pub(super) async fn named_secrets(
        &self,
        cluster: &TenantCluster,
    ) -> Result<(BTreeMap<String, BTreeSet<String>>, Secrets), ReconcileError> {
        let (mut keys, mut found) = (BTreeMap::new(), BTreeMap::new());
        for needed in needed_secrets(cluster) {
            if let Some(secret) = self.secret(cluster, &needed.name).await? {
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
        };
        Ok((keys, secrets))
    }

    /// The keys of a cluster, or why they cannot be used.
    pub(super) async fn keys(&self, cluster: &TenantCluster) -> Result<Result<Keys, KeysSeen>, ReconcileError> {
        let name = keys_secret(&cluster.name_any());
        let Some(secret) = self.secret(cluster, &name).await? else { return Ok(Err(KeysSeen::Missing)) };
        if !is_own_secret(&secret, cluster) {
            let words = format!("there is a Secret {name} that was not made for this cluster: remove it");
            return Ok(Err(KeysSeen::Damaged(words)));
        }
        let key = text(&secret, KEY).and_then(|pem| PrivateKey::of_pem(&pem).ok());
        let read = key.zip(text(&secret, DEPLOYMENT_SECRET).filter(|secret| !secret.is_empty()));
        let damaged = || KeysSeen::Damaged(format!("the Secret {name} does not hold what was put there: put it back"));
        Ok(read.map(|(deployer, deployment_secret)| Keys { deployer, deployment_secret }).ok_or_else(damaged))
    }

    /// Draws the keys of a cluster, and stores them before their first use.
    pub(super) async fn draw(&self, cluster: &TenantCluster) -> Result<(), ReconcileError> {
        let key = PrivateKey::draw().map_err(|error| ReconcileError::Other(error.into()))?;
        // 244 random bits, from two random UUIDs.
        let drawn = Zeroizing::new(format!("{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple()));
        let pem = key.pem();
        let data = [(KEY, pem.expose()), (DEPLOYMENT_SECRET, drawn.as_str())];
        let secret = Secret {
            metadata: metadata(cluster, keys_secret(&cluster.name_any())),
            type_: Some(KEYS_TYPE.to_owned()),
            data: Some(data.map(|(key, value)| (key.to_owned(), ByteString(value.as_bytes().to_vec()))).into()),
            ..Secret::default()
        };
        kinds::create(self.objects, &secret).await.map(drop).attempting("keeping the deployer's key")
    }

    /// The stored kubeconfig, if it leads to the cluster. A user who may write Secrets in the namespace can replace it, and the
    /// controller must not send requests to the address in that.
    pub(in crate::reconcilers) async fn kubeconfig(
        &self,
        cluster: &TenantCluster,
    ) -> Result<Option<Zeroizing<String>>, ReconcileError> {
        let secret = self.secret(cluster, &kubeconfig_secret(&cluster.name_any())).await?;
        let text = secret.filter(|secret| is_own_secret(secret, cluster)).and_then(|secret| text(&secret, KUBECONFIG));
        Ok(text.filter(|text| {
            let leads = leads_to(cluster, text);
            if !leads {
                log::warn!("the kubeconfig of {} is of another cluster: it is not used", cluster.name_any());
            }
            leads
        }))
    }

    /// When the stored kubeconfig expires. `None` if there is no kubeconfig, or it is unknown.
    pub(super) async fn kubeconfig_ends(&self, cluster: &TenantCluster) -> Result<Option<Time>, ReconcileError> {
        let text = self.kubeconfig(cluster).await?;
        let ends = text.and_then(|text| Credentials::parse(&text).ok()?.ends());
        let seconds = ends.and_then(|ends| ends.duration_since(std::time::UNIX_EPOCH).ok());
        let time = seconds.and_then(|since| Timestamp::from_second(i64::try_from(since.as_secs()).ok()?).ok());
        Ok(time.map(Time))
    }

    /// Writes the kubeconfig. False if a Secret of this name was not made for this cluster: it stays.
    pub(super) async fn hand_over(&self, cluster: &TenantCluster, kubeconfig: &str) -> Result<bool, ReconcileError> {
        let name = kubeconfig_secret(&cluster.name_any());
        let attempt = "writing the kubeconfig's Secret";
        let data: BTreeMap<String, ByteString> =
            [(KUBECONFIG.to_owned(), ByteString(kubeconfig.as_bytes().to_vec()))].into();
        if let Some(there) = self.secret(cluster, &name).await? {
            if !is_own_secret(&there, cluster) {
                return Ok(false);
            }
            let part = json!({"metadata": {"resourceVersion": there.metadata.resource_version}, "data": data});
            let of = Collection::of::<Secret>(cluster.namespace().as_deref());
            return self.objects.patch(&of, &name, &part).await.map(|_| true).attempting(attempt);
        }
        let mut metadata = metadata(cluster, name);
        metadata.labels.get_or_insert_default().insert(CLUSTER_NAME.to_owned(), cluster.name_any());
        let type_ = Some(KUBECONFIG_TYPE.to_owned());
        let secret = Secret { metadata, type_, data: Some(data), ..Secret::default() };
        kinds::create(self.objects, &secret).await.map(|_| true).attempting(attempt)
    }

    /// The names of Secrets that were made for a cluster and are not being deleted. A foreign finalizer on one does not delay the
    /// cluster.
    pub(super) async fn own_secrets(&self, cluster: &TenantCluster) -> Result<Vec<String>, ReconcileError> {
        let mut own = Vec::new();
        for name in [kubeconfig_secret(&cluster.name_any()), keys_secret(&cluster.name_any())] {
            let is_own =
                |secret: Secret| secret.metadata.deletion_timestamp.is_none() && is_own_secret(&secret, cluster);
            if self.secret(cluster, &name).await?.is_some_and(is_own) {
                own.push(name);
            }
        }
        Ok(own)
    }

    pub(super) async fn remove_secret(&self, cluster: &TenantCluster, name: &str) -> Result<(), ReconcileError> {
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
fn leads_to(cluster: &TenantCluster, kubeconfig: &str) -> bool {
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

fn text(secret: &Secret, key: &str) -> Option<Zeroizing<String>> {
    let value = secret.data.as_ref()?.get(key)?;
    String::from_utf8(value.0.clone()).ok().map(Zeroizing::new)
}

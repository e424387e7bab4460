//! The keys of a cluster: the deployer's key, the deployment secret, and the controller's own kubeconfig, which its control-plane
//! nodes issue for a day. They are in a Secret of `kaas-system` with the cluster's UID as its name. No tenant can read it.
//!
//! Earlier versions kept the keys in `NAME-deployer` in the cluster's namespace, and tenants could read the deployer's key. The
//! controller moves such keys. Each step is one write, and is repeated after an interruption:
//!
//! 1. It copies the keys to the new Secret, with the stage `copied`.
//! 2. A later look reads the new Secret, compares it with the former one, and deletes that.
//! 3. It writes the stage `exposed`: tenants may know the deployer's key.
//!
//! It moves nothing before the image of the control cluster is committed: after a rollback the earlier version leads again, and
//! reads `NAME-deployer` alone. Until then the keys and the kubeconfig are used and renewed where that version keeps them.
//!
//! Then it replaces the deployer's key, once all control-plane nodes run a committed image that takes two keys. The field
//! `key.pem` fits all nodes at every moment:
//!
//! 4. It draws the next key, and stores it as `next.pem`.
//! 5. It gives each node both keys. When each has answered with both, one write makes the next key `key.pem`, with the stage
//!    `replaced`.
//! 6. It gives each node the new key alone. When each has answered with it, the stage is removed.

use std::collections::BTreeMap;

use contract::configure::Properties;
use contract::deployer::{PrivateKey, PublicKey, user, written};
use contract::properties::DEPLOYER_PUBLIC_KEY;
use fleet::nodes::{ConfigureAnswer, Credentials};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use kube::api::ObjectMeta;
use serde_json::{Value, json};
use uuid::Uuid;
use zeroize::Zeroizing;

use super::secrets::{KUBECONFIG, ends, leads_to, text};
use super::{Reconciler, Round};
use crate::context::{Attempt, ReconcileError};
use crate::decisions::{
    CLUSTER, KEYS_TYPE, Keys, KeysSeen, former_keys_secret, is_keys_secret, is_own_secret, keys_secret,
    kubeconfig_secret,
};
use crate::objects::{SYSTEM, TenantCluster};
use crate::reach::{Collection, Failure, kinds};

/// The fields of the Secret: the deployer's key, the deployment secret, the controller's own kubeconfig, and the [`Stage`].
const KEY: &str = "key.pem";
const DEPLOYMENT_SECRET: &str = "deployment-secret";
const OWN_KUBECONFIG: &str = "kubeconfig";
const STAGE: &str = "stage";
/// The deployer's next key, while the present one is replaced.
const NEXT_KEY: &str = "next.pem";

/// The controller's own kubeconfig.
pub(super) struct OwnKubeconfig {
    pub(super) text: Zeroizing<String>,
    /// When it expires. `None` if it is unknown, or if the kubeconfig is of a former key.
    pub(super) ends: Option<Time>,
}

/// How far keys of an earlier version were moved and replaced. Keys that were drawn in `kaas-system` have no stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// They were copied. The former Secret may exist.
    Copied,
    /// The former Secret does not exist. The deployer's key is to be replaced.
    Exposed,
    /// Each node has the key, and may also have the former one.
    Replaced,
}

impl Stage {
    fn text(self) -> &'static str {
        match self {
            Self::Copied => "copied",
            Self::Exposed => "exposed",
            Self::Replaced => "replaced",
        }
    }

    fn of(secret: &Secret) -> Option<Self> {
        let there = text(secret, STAGE)?;
        [Self::Copied, Self::Exposed, Self::Replaced].into_iter().find(|stage| stage.text() == there.as_str())
    }
}

impl Reconciler<'_> {
    async fn kept_keys(&self, cluster: &TenantCluster) -> Result<Option<Secret>, ReconcileError> {
        let found = kinds::find::<Secret>(self.objects, Some(SYSTEM), &keys_secret(cluster)).await;
        found.attempting("reading the cluster's keys")
    }

    /// The Secret of an earlier version with the keys of a cluster, as long as they stay there.
    async fn unmoved_keys(&self, cluster: &TenantCluster) -> Result<Option<Secret>, ReconcileError> {
        if self.is_marked || cluster.deployment().is_none() || self.kept_keys(cluster).await?.is_some() {
            return Ok(None);
        }
        let former = self.secret(cluster, &former_keys_secret(&cluster.name_any())).await?;
        Ok(former.filter(|former| is_own_secret(former, cluster)))
    }

    /// Whether the keys stay where an earlier version keeps them: then users read the controller's own kubeconfig.
    pub(super) async fn has_unmoved_keys(&self, cluster: &TenantCluster) -> Result<bool, ReconcileError> {
        Ok(self.unmoved_keys(cluster).await?.is_some())
    }

    /// The keys of a cluster, or why they cannot be used. Moves keys of an earlier version.
    pub(super) async fn keys(&self, cluster: &TenantCluster) -> Result<Result<Keys, KeysSeen>, ReconcileError> {
        if let Some(former) = self.unmoved_keys(cluster).await? {
            let name = former.name_any();
            let damaged = || format!("the Secret {name} does not hold what was put there: put it back");
            return Ok(read(&former).ok_or_else(|| KeysSeen::Damaged(damaged())));
        }
        let secret = match self.kept_keys(cluster).await? {
            Some(secret) => secret,
            None => match self.copied_keys(cluster).await? {
                Some(secret) => secret,
                None => return Ok(Err(KeysSeen::Missing)),
            },
        };
        let name = keys_secret(cluster);
        if !is_keys_secret(&secret, cluster) {
            let words = format!("there is a Secret {name} in {SYSTEM} that was not made for this cluster: remove it");
            return Ok(Err(KeysSeen::Damaged(words)));
        }
        let damaged = || {
            KeysSeen::Damaged(format!("the Secret {name} in {SYSTEM} does not hold what was put there: put it back"))
        };
        let Some(keys) = read(&secret) else { return Ok(Err(damaged())) };
        if Stage::of(&secret) == Some(Stage::Copied) {
            self.drop_former_keys(cluster, &keys).await?;
        }
        Ok(Ok(keys))
    }

    /// Copies the keys of an earlier version. `None` without such keys. Before the cluster's first VM a tenant may have written
    /// them: such keys are not used.
    async fn copied_keys(&self, cluster: &TenantCluster) -> Result<Option<Secret>, ReconcileError> {
        if cluster.deployment().is_none() {
            return Ok(None);
        }
        let former = self.secret(cluster, &former_keys_secret(&cluster.name_any())).await?;
        let Some(former) = former.filter(|former| is_own_secret(former, cluster)) else { return Ok(None) };
        let Some(keys) = read(&former) else { return Ok(None) };
        let mut data = data_of(&keys);
        data.insert(STAGE.to_owned(), bytes(Stage::Copied.text()));
        // With it the controller reaches the cluster while the vCenter is away.
        let handed_over = self.secret(cluster, &kubeconfig_secret(&cluster.name_any())).await?;
        let handed_over = handed_over.filter(|secret| is_own_secret(secret, cluster));
        if let Some(text) = handed_over.and_then(|secret| text(&secret, KUBECONFIG))
            && leads_to(cluster, &text)
        {
            data.insert(OWN_KUBECONFIG.to_owned(), bytes(&text));
        }
        let made =
            kinds::create(self.objects, &secret_of(cluster, data)).await.attempting("moving the cluster's keys")?;
        log::info!("{}: its keys were copied to {SYSTEM}", cluster.name_any());
        Ok(Some(made))
    }

    /// Deletes the Secret of an earlier version once the copy was read again. It stays if it has other keys.
    async fn drop_former_keys(&self, cluster: &TenantCluster, copy: &Keys) -> Result<(), ReconcileError> {
        let name = former_keys_secret(&cluster.name_any());
        let former = self.secret(cluster, &name).await?;
        if let Some(former) = former.filter(|former| is_own_secret(former, cluster)) {
            if read(&former).is_none_or(|former| !are_equal(&former, copy)) {
                log::warn!("the Secret {name} has other keys than {SYSTEM}: it is not removed; remove it by hand");
                return Ok(());
            }
            kinds::delete(self.objects, &former).await.attempting("removing the former Secret with the keys")?;
            log::info!("{}: the former Secret with its keys was removed", cluster.name_any());
        }
        self.write_keys(cluster, &json!({STAGE: bytes(Stage::Exposed.text())})).await
    }

    /// Draws the keys of a cluster, and stores them before their first use.
    pub(super) async fn draw(&self, cluster: &TenantCluster) -> Result<(), ReconcileError> {
        let deployer = PrivateKey::draw().map_err(|error| ReconcileError::Other(error.into()))?;
        // 244 random bits, from two random UUIDs.
        let drawn = Zeroizing::new(format!("{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple()));
        let secret = secret_of(cluster, data_of(&Keys { deployer, deployment_secret: drawn }));
        kinds::create(self.objects, &secret).await.map(drop).attempting("keeping the deployer's key")
    }

    /// The controller's own kubeconfig, if it leads to the cluster.
    pub(in crate::reconcilers) async fn kubeconfig(
        &self,
        cluster: &TenantCluster,
    ) -> Result<Option<Zeroizing<String>>, ReconcileError> {
        Ok(self.own_kubeconfig(cluster).await?.map(|own| own.text))
    }

    /// The controller's own kubeconfig with its end, if it leads to the cluster.
    pub(super) async fn own_kubeconfig(
        &self,
        cluster: &TenantCluster,
    ) -> Result<Option<OwnKubeconfig>, ReconcileError> {
        let (secret, text) = match self.unmoved_keys(cluster).await? {
            Some(former) => {
                let handed_over = self.secret(cluster, &kubeconfig_secret(&cluster.name_any())).await?;
                let handed_over = handed_over.filter(|secret| is_own_secret(secret, cluster));
                (former, handed_over.and_then(|secret| text(&secret, KUBECONFIG)))
            }
            None => {
                let secret = self.kept_keys(cluster).await?.filter(|secret| is_keys_secret(secret, cluster));
                let Some(secret) = secret else { return Ok(None) };
                let own = text(&secret, OWN_KUBECONFIG);
                (secret, own)
            }
        };
        let Some(text) = text else { return Ok(None) };
        if !leads_to(cluster, &text) {
            log::warn!("the stored kubeconfig of {} leads elsewhere: it is not used", cluster.name_any());
            return Ok(None);
        }
        let ends = read(&secret).and_then(|keys| ends(&credentials_of(&text, &keys)?));
        Ok(Some(OwnKubeconfig { text, ends }))
    }

    /// Stores the controller's own kubeconfig.
    pub(super) async fn keep_kubeconfig(&self, cluster: &TenantCluster, text: &str) -> Result<(), ReconcileError> {
        self.write_keys(cluster, &json!({OWN_KUBECONFIG: bytes(text)})).await
    }

    /// Changes fields of the Secret with the keys in one write.
    async fn write_keys(&self, cluster: &TenantCluster, data: &Value) -> Result<(), ReconcileError> {
        let of = Collection::of::<Secret>(Some(SYSTEM));
        let written = self.objects.patch(&of, &keys_secret(cluster), &json!({"data": data})).await;
        written.map(drop).attempting("writing the Secret with the cluster's keys")
    }

    /// Whether the Secret with the keys of a cluster exists.
    pub(super) async fn has_keys(&self, cluster: &TenantCluster) -> Result<bool, ReconcileError> {
        let is_own = |secret: Secret| secret.metadata.deletion_timestamp.is_none() && is_keys_secret(&secret, cluster);
        Ok(self.kept_keys(cluster).await?.is_some_and(is_own))
    }

    pub(super) async fn remove_keys(&self, cluster: &TenantCluster) -> Result<(), ReconcileError> {
        match self.objects.delete(&Collection::of::<Secret>(Some(SYSTEM)), &keys_secret(cluster)).await {
            Err(Failure::Missing) => Ok(()),
            removed => removed.attempting("removing the cluster's keys"),
        }
    }
}

impl Round<'_> {
    /// Takes the next step in the replacement of a key that tenants may know. The caller has looked: all nodes are healthy, and no
    /// swap is open.
    pub(super) async fn replace_exposed_key(&self) -> Result<(), ReconcileError> {
        let cluster = self.cluster;
        let secret = self.kept_keys(cluster).await?.filter(|secret| is_keys_secret(secret, cluster));
        let Some(secret) = secret else { return Ok(()) };
        let own = text(&secret, OWN_KUBECONFIG).filter(|text| leads_to(cluster, text));
        let (Some(stage), Some(keys), Some(own)) = (Stage::of(&secret), read(&secret), own) else { return Ok(()) };
        let present = public(&keys.deployer)?;
        match stage {
            Stage::Copied => Ok(()),
            Stage::Exposed => {
                let Some(next) = text(&secret, NEXT_KEY).and_then(|pem| PrivateKey::of_pem(&pem).ok()) else {
                    let next = PrivateKey::draw().map_err(|error| ReconcileError::Other(error.into()))?;
                    return self.write_keys(cluster, &json!({NEXT_KEY: bytes(next.pem().expose())})).await;
                };
                if !self.have_keys(&own, &[present, public(&next)?]).await? {
                    return Ok(());
                }
                log::info!("{}: its control-plane nodes take another deployer's key", cluster.name_any());
                let (key, stage) = (bytes(next.pem().expose()), bytes(Stage::Replaced.text()));
                self.write_keys(cluster, &json!({KEY: key, STAGE: stage, NEXT_KEY: null})).await
            }
            // The nodes do not admit the former key's user afterwards.
            Stage::Replaced if credentials_of(&own, &keys).is_none() => Ok(()),
            Stage::Replaced => {
                if !self.have_keys(&own, &[present]).await? {
                    return Ok(());
                }
                log::info!("{}: its control-plane nodes refuse the former deployer's key", cluster.name_any());
                self.write_keys(cluster, &json!({STAGE: null})).await
            }
        }
    }

    /// Gives each control-plane node these keys. True if each has answered that it has them now.
    async fn have_keys(&self, kubeconfig: &str, keys: &[PublicKey]) -> Result<bool, ReconcileError> {
        let asked = Properties { properties: [(DEPLOYER_PUBLIC_KEY.to_owned(), written(keys))].into() };
        for node in &self.record()?.nodes {
            match self.places.configure(kubeconfig, node.address, &asked, false).await {
                Ok(ConfigureAnswer::Configured(now)) if now.properties == asked.properties => continue,
                Ok(ConfigureAnswer::Configured(_)) => {
                    log::warn!("{} answers with other keys than it was given", node.name);
                }
                Ok(ConfigureAnswer::Refused(refusal)) => {
                    log::warn!("{} refuses its deployer's keys: {}", node.name, refusal.reason);
                }
                Ok(ConfigureAnswer::UnknownRoute) => {
                    log::debug!("the image of {} takes one deployer's key only", node.name);
                }
                Err(error) => log::warn!("giving {} its deployer's keys: {error:#}", node.name),
            }
            return Ok(false);
        }
        Ok(true)
    }
}

/// The credentials of a kubeconfig, if their user is that of the deployer's present key.
fn credentials_of(kubeconfig: &str, keys: &Keys) -> Option<Credentials> {
    let current = user(&keys.deployer.public().ok()?);
    Credentials::parse(kubeconfig).ok().filter(|credentials| credentials.user() == Some(current))
}

fn public(key: &PrivateKey) -> Result<PublicKey, ReconcileError> {
    key.public().map_err(|error| ReconcileError::Other(error.into()))
}

/// The keys in a Secret of this or an earlier version.
fn read(secret: &Secret) -> Option<Keys> {
    let deployer = text(secret, KEY).and_then(|pem| PrivateKey::of_pem(&pem).ok())?;
    let deployment_secret = text(secret, DEPLOYMENT_SECRET).filter(|secret| !secret.is_empty())?;
    Some(Keys { deployer, deployment_secret })
}

fn are_equal(one: &Keys, other: &Keys) -> bool {
    let public = |keys: &Keys| keys.deployer.public().ok();
    public(one).is_some() && public(one) == public(other) && one.deployment_secret == other.deployment_secret
}

fn data_of(keys: &Keys) -> BTreeMap<String, ByteString> {
    let pem = keys.deployer.pem();
    let data = [(KEY, pem.expose()), (DEPLOYMENT_SECRET, keys.deployment_secret.as_str())];
    data.map(|(key, value)| (key.to_owned(), bytes(value))).into()
}

fn bytes(text: &str) -> ByteString {
    ByteString(text.as_bytes().to_vec())
}

/// Without an owner: Kubernetes has none in another namespace. The cluster's deletion removes it.
fn secret_of(cluster: &TenantCluster, data: BTreeMap<String, ByteString>) -> Secret {
    let metadata = ObjectMeta {
        name: Some(keys_secret(cluster)),
        namespace: Some(SYSTEM.to_owned()),
        labels: Some([(CLUSTER.to_owned(), cluster.name_any())].into()),
        ..ObjectMeta::default()
    };
    Secret { metadata, type_: Some(KEYS_TYPE.to_owned()), data: Some(data), ..Secret::default() }
}

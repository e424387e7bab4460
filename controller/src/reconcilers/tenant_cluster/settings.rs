//! Gives control-plane nodes the settings of the spec while the cluster runs. Each look takes one step, decided from the answers of a
//! dry run ([`crate::decisions::next_setting`]): nothing is in memory, and the next leader continues.
//!
//! 1. Fields that differ from the recorded hashes, or an open Operation, begin a dry run on all nodes.
//! 2. An Operation is created before the first node is changed. Its plan has the fields, and its status the step before each change.
//!    Fields that differ later follow in the next Operation.
//! 3. Each node is changed once all others are Ready and have applied the settings.
//! 4. If a node refuses, the changed nodes get its values, and the Operation ends.
//! 5. Once all nodes have the settings, their hashes are recorded, and the Operation ends. Settings of other fields stay as nodes
//!    have them.

use std::collections::BTreeMap;
use std::time::Duration;

use contract::configure::Properties;
use contract::properties::{self, SERVICE_VIPS};
use fleet::control_plane::DeployStatus;
use fleet::nodes::ConfigureAnswer;
use kube::ResourceExt;
use serde_json::json;

use super::begin::{References, node_settings};
use super::own_nodes::nodes;
use super::{Round, STUCK, WAITING};
use crate::context::{Attempt, ReconcileError};
use crate::decisions::{
    AskedNode, ClaimStep, ClusterCondition, Obstacle, SettingsStep, further_vips, is_bounded, next_claim, next_setting,
    node_settings_hashes, operation_of, pending_settings, service_vips, setting_fields, tenant_of, with_applied,
    with_present_vips,
};
use crate::objects::{Operation, OperationKind, OperationReason, PlannedStep, Resolved, TenantClusterReason};
use crate::reach::{claim, kinds};

/// How many ended Operations of a type are kept.
const KEPT: usize = 10;

pub(super) enum SettingsOutcome {
    /// Nodes have the settings.
    Current,
    /// Nodes have the settings, and the status was changed to say so.
    Recorded,
    Pending(PendingSettings),
}

/// Settings that nodes do not have yet.
pub(super) struct PendingSettings {
    /// The reason of `UpToDate`, with its message.
    pub(super) said: ClusterCondition,
    pub(super) obstacle: Option<Obstacle>,
    /// The Operation that changes them.
    pub(super) operation: Option<String>,
}

impl PendingSettings {
    fn new(reason: TenantClusterReason, words: String, operation: Option<&str>) -> Self {
        Self { said: (reason, words), obstacle: None, operation: operation.map(str::to_owned) }
    }

    fn blocked(obstacle: Obstacle, operation: Option<&str>) -> Self {
        let pending = Self::new(TenantClusterReason::ChangeBlocked, obstacle.message.clone(), operation);
        Self { obstacle: Some(obstacle), ..pending }
    }

    /// When to look again.
    pub(super) fn rest(&self) -> Duration {
        if self.said.0 == TenantClusterReason::Changing { WAITING } else { STUCK }
    }
}

impl Round<'_> {
    /// Takes the next step towards the settings of the spec. The caller has looked: no other change of the nodes runs. `all` are
    /// the cluster's Operations.
    pub(super) async fn configure(
        &self,
        seen: &DeployStatus,
        all: &[Operation],
    ) -> Result<SettingsOutcome, ReconcileError> {
        use SettingsOutcome::{Current, Pending, Recorded};
        use TenantClusterReason::{Changing, ImageUnsuitable, PropertiesRefused, SecretMissing, SettingsRefused};
        let (cluster, spec) = (self.cluster, &self.cluster.spec);
        let pinned = cluster.resolved().cloned().unwrap_or_default();
        let versions = self.named_secrets(cluster).await?.1.versions;
        let pending = pending_settings(spec, &versions, &pinned.node_settings);
        let open = all.iter().find(|it| is_open_configure(it));
        let operation = open.map(ResourceExt::name_any);
        let operation = operation.as_deref();
        let changed: Vec<String> = match open {
            Some(open) => planned_fields(open).unwrap_or_else(setting_fields),
            None => pending.iter().map(|field| (*field).to_owned()).collect(),
        };
        if pending.is_empty() && operation.is_none() {
            let applied = node_settings_hashes(spec, &versions);
            // An earlier version recorded no versions of Secrets. Changes of their content count from now on.
            if !pinned.node_settings.is_empty() && pinned.node_settings != applied {
                self.note_applied(&applied).await?;
            }
            return Ok(Current);
        }
        // Nodes are asked for these. Fields that differ later follow in the next Operation.
        let fields = changed.join(", ");
        let changing = |words: &str| Pending(PendingSettings::new(Changing, about(&fields, words), operation));
        if let Some(rest) = self.pause_reason(cluster).await? {
            if let Some(name) = operation {
                self.note_operation(name, &[(rest.reason(), String::new())], |_| ()).await?;
            }
            return Ok(changing("nodes do not have it yet, and no change begins now"));
        }
        let around = self.load_references(cluster).await?;
        // Without its Secret, a setting would be removed from the nodes. Other obstacles are those of a creation.
        let missing = around.obstacles.iter().filter(|obstacle| obstacle.reason == SecretMissing);
        if let Some(obstacle) = Obstacle::of_all(missing.cloned().collect()) {
            return Ok(Pending(PendingSettings::blocked(obstacle, operation)));
        }
        let (Some(deployment), Some(kubeconfig)) = (cluster.deployment(), self.kubeconfig(cluster).await?) else {
            return Ok(changing("nodes do not have it yet: the cluster's kubeconfig is not at hand"));
        };
        if changed.iter().any(|field| is_of_vips(field) && pending.contains(&field.as_str())) {
            match self.claim_vips(&around, &pinned).await? {
                Ok(true) => return Ok(Recorded),
                Ok(false) => {}
                Err(obstacle) => return Ok(Pending(PendingSettings::blocked(obstacle, operation))),
            }
        }
        let control_nodes = nodes(deployment, self.machines);
        let Some(settings) = node_settings(cluster, &around, &pinned, &control_nodes) else {
            return Ok(changing("the IPPool of the control-plane nodes no longer exists"));
        };
        let mut wanted = match settings.changeable() {
            Ok(wanted) => wanted,
            Err(error) => {
                let obstacle = Obstacle::new(PropertiesRefused, about(&fields, &format!("{error:#}")));
                return Ok(Pending(PendingSettings::blocked(obstacle, operation)));
            }
        };
        // Settings of other fields that were made by hand on the nodes stay.
        wanted.properties.retain(|key, _| becomes(&changed, key));
        let mut asked = self.asked(seen, &kubeconfig, &wanted).await?;
        let vips = wanted.properties.get(SERVICE_VIPS).map(String::as_str).unwrap_or_default();
        if let Some(all) = with_present_vips(vips, &asked) {
            wanted.properties.insert(SERVICE_VIPS.to_owned(), all);
            asked = self.asked(seen, &kubeconfig, &wanted).await?;
        }
        Ok(match next_setting(&asked, operation.is_some()) {
            SettingsStep::Done => {
                let now = node_settings_hashes(spec, &versions);
                self.note_applied(&with_applied(&pinned.node_settings, &now, &changed)).await?;
                self.end_operation(operation, "done", (OperationReason::Done, String::new()), asked.len()).await?;
                Recorded
            }
            SettingsStep::Wait(words) => {
                if let Some(name) = operation {
                    self.note_operation(name, &[(OperationReason::Waiting, words.clone())], |_| ()).await?;
                }
                changing(&words)
            }
            SettingsStep::ImageTooOld(node) => {
                let image = pinned.image.as_deref().unwrap_or_default();
                let words = format!(
                    "the image {image} of {node} cannot change it in a running cluster: upgrade the cluster to a later image with \
                     `image`"
                );
                Pending(PendingSettings::blocked(Obstacle::new(ImageUnsuitable, about(&fields, &words)), operation))
            }
            SettingsStep::Refused(words) => {
                self.end_operation(operation, "refused", (OperationReason::Refused, words.clone()), 0).await?;
                let words = about(&fields, &format!("{words}. All nodes keep their former settings"));
                Pending(PendingSettings::new(SettingsRefused, words, None))
            }
            SettingsStep::Change(index, mut former) => {
                if let Some(former) = &mut former {
                    // A tenant's node answers: it chooses no other properties.
                    former.properties.retain(|key, _| wanted.properties.contains_key(key));
                }
                let name = match operation {
                    Some(name) => name.to_owned(),
                    None => self.begin_configure(all, &asked, &changed).await?,
                };
                let words = self.change(&name, &kubeconfig, (&asked[..], index), (&wanted, former)).await?;
                Pending(PendingSettings::new(Changing, about(&fields, &words), Some(&name)))
            }
        })
    }

    /// Records the hashes of the settings that nodes have.
    async fn note_applied(&self, applied: &BTreeMap<String, String>) -> Result<(), ReconcileError> {
        self.note(self.cluster, &[], |status| {
            if let Some(resolved) = &mut status.resolved {
                resolved.node_settings.clone_from(applied);
            }
        })
        .await
    }

    /// Claims the next address for Services that the spec names, and records it. A quota counts recorded addresses, also if the spec
    /// changes back before the cluster has all of them. False if nothing is left to do.
    async fn claim_vips(
        &self,
        around: &References,
        pinned: &Resolved,
    ) -> Result<Result<bool, Obstacle>, ReconcileError> {
        let seen = self.objects.in_use(None).await.attempting("looking for PoolAddresses")?;
        let mut own = seen.of(self.cluster.metadata.uid.as_deref());
        let claims = match further_vips(self.cluster, &own) {
            Ok(claims) => claims,
            Err(obstacle) => return Ok(Err(obstacle)),
        };
        let has_claimed = match next_claim(&claims, &around.pools, seen.specs(), 0) {
            Err(obstacle) => return Ok(Err(obstacle)),
            Ok(ClaimStep::Make(address, _)) => {
                if let Some(obstacle) = self.denied_vips(around, (service_vips(&own).len(), claims.len())).await? {
                    return Ok(Err(obstacle));
                }
                claim(self.objects, &address).await.attempting("claiming an address")?;
                own.push(*address);
                true
            }
            Ok(ClaimStep::Has(_)) => false,
        };
        let vips = service_vips(&own);
        let further = vips.iter().map(|vip| &vip.address).filter(|address| !pinned.service_vips.contains(address));
        let all: Vec<String> = pinned.service_vips.iter().chain(further).cloned().collect();
        if all == pinned.service_vips {
            return Ok(Ok(has_claimed));
        }
        self.note(self.cluster, &[], |status| {
            if let Some(resolved) = &mut status.resolved {
                resolved.service_vips.clone_from(&all);
            }
        })
        .await?;
        Ok(Ok(true))
    }

    /// Why the cluster may not claim so many further addresses for Services. The rights of its namespace, the Tenant's quota or
    /// the Provider's limits can deny them. The numbers are those that it has,
    /// and the further ones.
    async fn denied_vips(
        &self,
        around: &References,
        numbers: (usize, usize),
    ) -> Result<Option<Obstacle>, ReconcileError> {
        let denied = denying(&around.obstacles);
        let namespace = self.cluster.namespace().unwrap_or_default();
        let tenant = tenant_of(&around.tenants, &namespace);
        let bounding = around.provider.as_ref().filter(|provider| denied.is_none() && is_bounded(provider, tenant));
        let Some(provider) = bounding else { return Ok(denied) };
        let inventory = self.objects.inventory().await.attempting("looking at what clusters have")?;
        Ok(inventory.denied_vips(provider, self.cluster, numbers))
    }

    /// The answers of all control-plane nodes to a dry run.
    async fn asked(
        &self,
        seen: &DeployStatus,
        kubeconfig: &str,
        wanted: &Properties,
    ) -> Result<Vec<AskedNode>, ReconcileError> {
        let mut asked = Vec::new();
        for node in &self.record()?.nodes {
            let answer = self.places.configure(kubeconfig, node.address, wanted, true).await;
            let is_ready = seen.nodes.iter().any(|it| it.name == node.name && it.ready);
            let answer = answer.map_err(|error| format!("{error:#}"));
            asked.push(AskedNode { name: node.name.clone(), is_ready, answer });
        }
        Ok(asked)
    }

    /// Gives a node the wanted settings, or `former` ones. Returns what was done, in words.
    async fn change(
        &self,
        name: &str,
        kubeconfig: &str,
        (asked, index): (&[AskedNode], usize),
        (wanted, former): (&Properties, Option<Properties>),
    ) -> Result<String, ReconcileError> {
        let node = &asked[index].name;
        let (reason, words) = match &former {
            None => (OperationReason::Running, format!("{node} gets the settings")),
            Some(_) => (OperationReason::RollingBack, format!("a node refuses: {node} gets its former settings")),
        };
        let has_it =
            |it: &&AskedNode| matches!(&it.answer, Ok(ConfigureAnswer::Configured(now)) if now.changed.is_empty());
        let done = i32::try_from(asked.iter().filter(has_it).count()).unwrap_or(i32::MAX);
        let said = [(reason, words.clone()), (OperationReason::NotEnded, String::new())];
        self.note_operation(name, &said, |status| {
            (status.step, status.steps_done) = (Some(format!("configure {node}")), done);
        })
        .await?;
        self.term.ensure_active()?;
        let address = self.record()?.nodes[index].address;
        let answer = self.places.configure(kubeconfig, address, former.as_ref().unwrap_or(wanted), false).await;
        let failed = match answer {
            Ok(ConfigureAnswer::Configured(_)) => return Ok(words),
            Ok(ConfigureAnswer::Refused(refusal)) => refusal.reason,
            Ok(ConfigureAnswer::UnknownRoute) => "its image is older".to_owned(),
            Err(error) => format!("{error:#}"),
        };
        let words = format!("{node}: {failed}");
        self.note_operation(name, &[(OperationReason::Waiting, words.clone())], |_| ()).await?;
        Ok(words)
    }

    /// Removes the oldest ended Operations of a type, before another one is created.
    pub(super) async fn remove_ended(&self, all: &[Operation], kind: OperationKind) -> Result<(), ReconcileError> {
        let mut ended: Vec<&Operation> = all.iter().filter(|it| it.spec.kind == kind && it.has_ended()).collect();
        ended.sort_by_key(|it| std::cmp::Reverse((it.creation_timestamp(), it.name_any())));
        for outlived in ended.iter().skip(KEPT - 1) {
            kinds::delete(self.objects, *outlived).await.attempting("removing an Operation that has ended long ago")?;
        }
        Ok(())
    }

    /// Creates the Operation before the first node is changed. Removes the oldest ended ones.
    async fn begin_configure(
        &self,
        all: &[Operation],
        asked: &[AskedNode],
        fields: &[String],
    ) -> Result<String, ReconcileError> {
        self.remove_ended(all, OperationKind::Configure).await?;
        let step = |node: &AskedNode| PlannedStep { action: "configure".to_owned(), node: Some(node.name.clone()) };
        let name = format!("{}-configure-{}", self.cluster.name_any(), self.clock.time().0.as_second());
        let steps = asked.iter().map(step).collect();
        let mut made = operation_of(self.cluster, &name, OperationKind::Configure, steps);
        made.spec.plan = Some(json!({"fields": fields}));
        self.create_operation(&made).await?;
        log::info!("{}: its control-plane nodes get other settings: {}", self.cluster.name_any(), fields.join(", "));
        Ok(name)
    }
}

/// The obstacles of a cluster that prevent further addresses: what its namespace may not use, and addresses outside of the subnet of
/// its nodes. Nodes would refuse those after they were taken from others.
fn denying(obstacles: &[Obstacle]) -> Option<Obstacle> {
    use TenantClusterReason::{NamespaceNotAllowed, RangesOverlap};
    let is_denied = |it: &&Obstacle| matches!(it.reason, NamespaceNotAllowed | RangesOverlap);
    Obstacle::of_all(obstacles.iter().filter(is_denied).cloned().collect())
}

/// The fields that an Operation gives to nodes. `None` for one of an earlier controller, which gave them all.
fn planned_fields(operation: &Operation) -> Option<Vec<String>> {
    let fields = operation.spec.plan.as_ref()?["fields"].as_array()?;
    Some(fields.iter().filter_map(|field| field.as_str().map(str::to_owned)).collect())
}

/// Whether one of these fields becomes the property of this key.
fn becomes(fields: &[String], key: &str) -> bool {
    properties::find(key).is_some_and(|property| property.spec.iter().any(|it| fields.iter().any(|field| field == it)))
}

fn is_of_vips(field: &str) -> bool {
    field.starts_with("network.serviceVIPs.")
}

fn about(fields: &str, words: &str) -> String {
    if fields.is_empty() { words.to_owned() } else { format!("{fields}: {words}") }
}

/// Whether an Operation changes settings and has not ended.
pub(super) fn is_open_configure(operation: &Operation) -> bool {
    operation.spec.kind == OperationKind::Configure && !operation.has_ended()
}

#[cfg(test)]
mod tests {
    use super::*;

    // Finding 3 of controller.md: a running cluster took addresses of any pool, and its nodes refused them afterwards.
    #[test]
    fn addresses_outside_of_the_subnet_are_not_claimed() {
        use TenantClusterReason::{NamespaceNotAllowed, ProviderNotReady, RangesOverlap};
        let all = [(ProviderNotReady, "a"), (RangesOverlap, "b"), (NamespaceNotAllowed, "c")];
        let all = all.map(|(reason, words)| Obstacle::new(reason, words));
        assert_eq!(denying(&all).map(|it| it.message).as_deref(), Some("b"));
        assert_eq!(denying(&all[2..]).map(|it| it.message).as_deref(), Some("c"));
        assert_eq!(denying(&all[..1]), None);
    }
}

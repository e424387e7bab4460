//! Laying an OVA ready as a template: imported once, then made a template in steps that each can be taken again.

use std::collections::BTreeMap;
use std::path::Path;

use ova::archive::Archive;
use uuid::Uuid;
use vsphere::{ConfigSpec, Import, MoRef, Outcome, Power};

use super::VcenterHypervisor;
use super::image::{SNAPSHOT, as_staged, digest as digest_of, is_whole, snapshot};
use super::place::Place;
use super::stamp::{GOING, IMAGE, LAID_BY, laid_by};
use super::trouble::Asking;
use crate::hypervisor::{Error, Kind, Permit, Placement, Result, Staged, Vm};

/// So many characters of the digest are in a template's name, for people.
const SHORT: usize = 12;

impl VcenterHypervisor {
    pub(super) async fn lay_ready(
        &self,
        ova: &Path,
        digest: &str,
        like: Option<&Vm>,
        placement: &Placement,
        permit: &dyn Permit,
    ) -> Result<Staged> {
        if let Some(staged) = self.found_staged(digest, like, placement).await? {
            return Ok(staged);
        }
        let like = match like {
            Some(vm) => Some(self.named(&vm.reference).await?),
            None => None,
        };
        let place = self.place(like.as_ref(), placement).await?;
        self.takes_vms(&place.at).await?;
        let half = match self.half_of(digest, &place, permit).await? {
            Some(half) => half,
            None => self.upload(ova, digest, like.as_ref(), &place, permit).await?,
        };
        self.finish(&half, digest, permit).await
    }

    /// Ends what an earlier command of this deployment has left half done; one of this image that has all its bytes is gone
    /// on with. Nobody else lays images for this deployment: whoever has its permit is the only one. Halves of other
    /// deployments are theirs.
    async fn half_of(&self, digest: &str, place: &Place, permit: &dyn Permit) -> Result<Option<MoRef>> {
        let is_own = |vm: &vsphere::Entries| vm.extra.get(LAID_BY) == Some(&laid_by(self.deployment, &vm.name));
        let mut found = None;
        for half in self.laid(&place.at, |vm| is_own(vm) && !vm.is_template).await? {
            // It never had more than the image's own disk, and never ran.
            if half.power != Power::Off || half.devices.disks.len() > 1 {
                log::warn!("{} was left half laid ready, and is no longer as it was left: it stays", half.name);
            } else if found.is_none() && half.extra.get(IMAGE) == Some(digest) {
                found = Some(half.reference);
            } else {
                self.remove_half(&half, permit).await?;
            }
        }
        Ok(found)
    }

    /// Two requests, as with any VM that is destroyed: the first is refused when it is not as it was seen.
    async fn remove_half(&self, half: &vsphere::Vm, permit: &dyn Permit) -> Result<()> {
        let asking = Asking(permit);
        let changes = self.client.changes(&asking);
        let removed = async {
            changes.reconfigure(&half.reference, &ConfigSpec::of(half).extra(GOING, "yes")).await?;
            changes.destroy(&half.reference).await
        };
        match removed.await.map_err(Error::from) {
            Ok(()) => log::info!("{} was left half laid ready, and is removed", half.name),
            Err(error) if matches!(error.kind, Kind::Fenced | Kind::InDoubt) => return Err(error),
            // What an upload that has broken off has left vCenter removes itself, once its lease has ended.
            Err(error) => log::info!("{} was left half laid ready, and stays for now: {error}", half.name),
        }
        Ok(())
    }

    /// Imports an OVA without the disks that have no file in it: each VM gets its own.
    async fn upload(
        &self,
        ova: &Path,
        digest: &str,
        like: Option<&vsphere::Vm>,
        place: &Place,
        permit: &dyn Permit,
    ) -> Result<MoRef> {
        let another = || Error::refused(format!("{} is not the OVA that was planned with", ova.display()));
        if digest_of(ova).await? != digest {
            return Err(another());
        }
        let name = format!("kaas-image-{}-{}", &digest.get(..SHORT).unwrap_or(digest), short(Uuid::new_v4()));
        let config = ConfigSpec::new().extra(LAID_BY, &laid_by(self.deployment, &name)).annotation(
            "An image that VMs are cloned from. Remove it once no VM stands on it: it is laid anew when it is needed.",
        );
        let properties = BTreeMap::new();
        let import = Import {
            ova,
            name: &name,
            folder: &self.places.templates,
            pool: &place.pool,
            datastore: &place.at.datastore,
            host: None,
            networks: self.networks_for(ova, like).await?,
            properties: &properties,
            option: None,
            config: &config,
            blank_disks: false,
        };
        let tell = |percent: u32| log::debug!("uploading {}: {percent} %", ova.display());
        let asking = Asking(permit);
        let imported = self.client.changes(&asking).telling(&tell).import(&import).await?;
        for warning in imported.warnings {
            log::info!("importing {}: {warning}", ova.display());
        }
        // What was sent was held against the manifest of the file that was there then.
        if digest_of(ova).await? != digest {
            return Err(another());
        }
        let now = self.client.vm(&imported.vm).await?;
        self.client.changes(&asking).reconfigure(&now.reference, &ConfigSpec::of(&now).extra(IMAGE, digest)).await?;
        Ok(now.reference)
    }

    /// The networks of an OVA, all on the one that the template is on; vCenter chooses where none is known.
    async fn networks_for(&self, ova: &Path, like: Option<&vsphere::Vm>) -> Result<BTreeMap<String, MoRef>> {
        let path = ova.to_owned();
        let read = tokio::task::spawn_blocking(move || -> anyhow::Result<Vec<String>> {
            let descriptor = Archive::open(&path)?.descriptor()?;
            Ok(descriptor.networks.into_iter().map(|network| network.name).collect())
        });
        let names = match read.await {
            Ok(names) => names.map_err(Error::refused)?,
            Err(panic) => std::panic::resume_unwind(panic.into_panic()),
        };
        let network = match (self.places.networks.first(), like) {
            (Some((network, _)), _) => Some(network.clone()),
            (None, Some(like)) => self.client.look(&like.reference, &["network"]).await?.references_at("network").pop(),
            (None, None) => None,
        };
        Ok(network
            .into_iter()
            .flat_map(|network| names.iter().map(move |name| (name.clone(), network.clone())))
            .collect())
    }

    /// Makes a template of what has all bytes of an image. Each step looks first.
    async fn finish(&self, half: &MoRef, digest: &str, permit: &dyn Permit) -> Result<Staged> {
        let asking = Asking(permit);
        let changes = self.client.changes(&asking);
        let now = self.client.vm(half).await?;
        if snapshot(&now).is_none() {
            changes.create_snapshot(half, SNAPSHOT, "What clones are made from").await?;
        }
        if !now.is_template {
            match changes.mark_as_template(half).await {
                Err(error) if error.outcome() != Outcome::Changed => return Err(error.into()),
                _ => {}
            }
        }
        if is_whole(&self.client.vm(half).await?) {
            return Ok(as_staged(half, digest));
        }
        Err(Error::transient(anyhow::anyhow!("{} was laid ready and is no whole template", now.name)))
    }
}

fn short(uuid: Uuid) -> String {
    uuid.simple().to_string()[..8].to_owned()
}

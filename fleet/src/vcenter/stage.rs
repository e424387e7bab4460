//! Imports an OVA as a template. An incomplete import of an earlier command is removed and not continued, because its
//! state is unknown.

use std::collections::{BTreeMap, BTreeSet};
use std::future::ready;
use std::path::Path;

use vsphere::{ConfigSpec, DatastorePath, Import, MoRef, Outcome, Power};

use super::VcenterHypervisor;
use super::image::{Package, Standing, as_staged};
use super::place::Place;
use super::retry_budget::{RetryBudget, may_be_made_later};
use super::stamp::{GOING, IMAGE};
use super::template_catalog::{Note, SNAPSHOT, TemplateFingerprint, parts};
use super::trouble::{LastLook, Looked, changed, not_now};
use crate::hypervisor::{Error, ErrorKind, Fence, ImageTemplate, Placement, Result, Vm};

/// The limit for templates of an image that others have changed, or that were not sealed. Each cost an import and takes
/// its room.
const MOST_ALTERED: usize = 3;
/// The limit for interrupted uploads of an image that cannot be removed now. vCenter removes each one when its lease
/// ends. If another program works on each new VM, none is ever removed.
const MOST_BROKEN_OFF: usize = 2 * MOST_ALTERED;
/// How often a template's settings are read until they stay the same.
const LOOKS: usize = 10;

/// For users who find a template.
const ANNOTATION: &str =
    "An image that VMs are cloned from. Remove it once no VM is linked to it: it is imported again when it is needed.";

enum PartialImport {
    Gone,
    /// It could not be removed now, for this reason: the next command tries again.
    StaysForNow(String),
    /// Until the operator removes it.
    Stays,
}

impl VcenterHypervisor {
    pub(super) async fn lay_ready(
        &self,
        ova: &Path,
        digest: &str,
        like: Option<&Vm>,
        placement: &Placement,
        permit: &dyn Fence,
    ) -> Result<ImageTemplate> {
        if let Some(staged) = self.found_staged(digest, like, placement).await? {
            return Ok(staged);
        }
        let like = match like {
            Some(vm) => Some(self.named(&vm.reference).await?),
            None => None,
        };
        let place = self.place(like.as_ref(), placement).await?;
        self.takes_vms(&place.at).await?;
        self.takes_imports(&place.pool).await?;
        self.warn_before_upload(&place).await?;
        self.tidy(digest, permit).await?;
        self.upload(ova, digest, like.as_ref(), &place, permit).await
    }

    /// Removes the incomplete templates of earlier commands of this deployment, and logs which templates of this image
    /// are not used. Only the holder of the lease imports images for this deployment. A template of another image, or
    /// an incomplete one, that cannot be read blocks nothing: it is logged, and the next command looks again. Only too
    /// many leftovers of the same image are an error.
    pub(super) async fn tidy(&self, digest: &str, permit: &dyn Fence) -> Result<()> {
        let (mut altered, mut broken_off) = (Vec::new(), Vec::new());
        for note in self.laid.all().await? {
            let Some(seal) = &note.seal else {
                match self.end_half(&note, permit).await {
                    Err(error) if matches!(error.kind, ErrorKind::Fenced | ErrorKind::InDoubt) => return Err(error),
                    Err(error) => {
                        log::warn!("the incomplete template {} cannot be looked at: {error}", note.name);
                        if note.digest == digest {
                            broken_off.push(format!("{}: {error}", note.name));
                        }
                    }
                    Ok(PartialImport::Stays) if note.digest == digest => {
                        altered.push((format!("{}: it is incomplete", note.name), Vec::new()));
                    }
                    Ok(PartialImport::StaysForNow(why)) if note.digest == digest => {
                        broken_off.push(format!("{}: {why}", note.name));
                    }
                    Ok(_) => {}
                }
                continue;
            };
            match self.standing(seal).await {
                Ok(Standing::Gone) => self.laid.forget(&note, permit).await?,
                Ok(Standing::Altered(what)) if note.digest == digest => {
                    altered.push((format!("{}: {what}", note.name), seal.disk.clone()));
                }
                Ok(Standing::Altered(_) | Standing::Whole(_)) => {}
                Err(error) if note.digest == digest => {
                    return Err(error.context(format!("looking at the template {}", note.name)));
                }
                Err(error) => log::warn!("the template {} cannot be looked at: {error}", note.name),
            }
        }
        if broken_off.len() >= MOST_BROKEN_OFF {
            return Err(not_now(format!(
                "{} uploads of this image have broken off and cannot be removed now: {}. vCenter removes what each has left within \
                 minutes, unless other software uses each new VM in {}, such as backup or antivirus software. The image is uploaded \
                 again once some are gone",
                broken_off.len(),
                broken_off.join("; "),
                self.places.templates_path
            )));
        }
        // A template with a linked VM of the deployment cannot be removed. There are no more of these than VMs.
        let stood_on = if altered.len() < MOST_ALTERED { BTreeSet::new() } else { self.stood_on().await? };
        let count = altered.iter().filter(|(_, disk)| !disk.iter().any(|disk| stood_on.contains(disk))).count();
        let words: Vec<String> = altered.into_iter().map(|(words, _)| words).collect();
        let words = words.join("; ");
        match count {
            _ if words.is_empty() => Ok(()),
            0..MOST_ALTERED => {
                log::warn!(
                    "templates that this deployment has imported are not as they were then: {words}. They are not used, \
                     and the image is imported again"
                );
                Ok(())
            }
            _ => Err(not_now(format!(
                "{count} templates that this deployment has imported are not as they were then: {words}. Remove them where no \
                 VM is linked to them, and make sure that no other user changes templates in {}",
                self.places.templates_path
            ))),
        }
    }

    /// The disks that the deployment's VMs are linked to.
    async fn stood_on(&self) -> Result<BTreeSet<String>> {
        let disks = self.all_own().await?.into_iter().flat_map(|vm| vm.devices.disks);
        Ok(disks.flat_map(|disk| disk.parents).collect())
    }

    /// Removes an incomplete template. It has the noted name and BIOS UUID, never had more than the image's own disk,
    /// and never ran. Anything else stays and is logged. So does a template that was not sealed: others may have
    /// created linked VMs.
    async fn end_half(&self, note: &Note, permit: &dyn Fence) -> Result<PartialImport> {
        let mut found = Vec::new();
        for reference in self.client.vms_of_bios_uuid(&note.uuid.to_string()).await? {
            match self.client.vm(&reference).await {
                Ok(vm) => found.push(vm),
                Err(error) if error.outcome() == Outcome::NotFound => {}
                Err(error) => return Err(error.into()),
            }
        }
        let Some(half) = found.pop() else {
            if note.is_denied && self.has_files(note).await? {
                log::warn!(
                    "the template {} is incomplete, and its files are on the datastore: the account does not see the VM. \
                     Have its permissions on {} propagate to children, and remove the VM, or its files where there is no VM",
                    note.name,
                    self.places.templates_path
                );
                return Ok(PartialImport::Stays);
            }
            self.laid.forget(note, permit).await?;
            return Ok(PartialImport::Gone);
        };
        if found.is_empty() && is_half(note, &half, &self.places.templates) {
            return self.remove_half(note, &half, permit).await;
        }
        log::warn!(
            "the template {} is incomplete, and the VM with its BIOS UUID ({}) is not as it was left: it stays. Remove it \
             if it is a template that no VM is linked to",
            note.name,
            half.name
        );
        Ok(PartialImport::Stays)
    }

    /// Whether the datastore has the directory of an incomplete template. An account that does not see the VM sees its
    /// files.
    async fn has_files(&self, note: &Note) -> Result<bool> {
        let datastore = MoRef::new("Datastore", &note.datastore);
        let name = match self.client.datastore(&datastore).await {
            Ok(seen) => seen.name,
            // Its files are gone with the datastore.
            Err(error) if error.outcome() == Outcome::NotFound => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        match self.client.files(&datastore, &DatastorePath::new(name, &note.name), "*").await {
            Ok(_) => Ok(true),
            Err(error) if error.is_fault("FileNotFound") => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// The reason why an import did not become a template. If a privilege was missing, that is noted: the account may
    /// not see the VM. Without the note the VM would count as gone, and each command would leave another one.
    async fn unmade(&self, note: &Note, error: vsphere::Error, permit: &dyn Fence) -> Error {
        if error.lacks_privilege()
            && let Err(unnoted) = self.laid.deny(note, permit).await
        {
            log::debug!("noting that no template can be made of {}: {unnoted}", note.name);
        }
        error.into()
    }

    /// Makes two requests, as for any destroyed VM. The first is refused if the VM has changed since it was read. Right
    /// before the second, the VM is read again.
    async fn remove_half(&self, note: &Note, half: &vsphere::Vm, permit: &dyn Fence) -> Result<PartialImport> {
        let look = || -> Looked<'_> {
            Box::pin(async move {
                let now = self.client.vm(&half.reference).await?;
                if is_half(note, &now, &self.places.templates) {
                    return Ok(());
                }
                Err(changed(format!("{} is no longer as it was left", now.name)))
            })
        };
        let removed = async {
            let going = ConfigSpec::of(half).extra(GOING, "yes");
            self.client.changes(&permit).reconfigure(&half.reference, &going).await?;
            self.client.changes(&LastLook { permit, look: &look }).destroy(&half.reference).await
        };
        match removed.await.map_err(Error::from) {
            Ok(()) => {
                log::info!("the incomplete template {} is removed", half.name);
                self.laid.forget(note, permit).await?;
                Ok(PartialImport::Gone)
            }
            Err(error) if matches!(error.kind, ErrorKind::Fenced | ErrorKind::InDoubt) => Err(error),
            // vCenter removes the rest of an interrupted upload when its lease ends.
            Err(error) => {
                log::info!("the incomplete template {} stays for now: {error}", half.name);
                Ok(if error.kind == ErrorKind::Transient {
                    PartialImport::StaysForNow(error.to_string())
                } else {
                    PartialImport::Stays
                })
            }
        }
    }

    /// Imports an OVA without the disks that have no file in it, because each VM gets its own. Makes a template of it.
    async fn upload(
        &self,
        ova: &Path,
        digest: &str,
        like: Option<&vsphere::Vm>,
        place: &Place,
        permit: &dyn Fence,
    ) -> Result<ImageTemplate> {
        let another = || Error::refused(format!("{} is not the OVA that was planned with", ova.display()));
        let package = Package::read(ova).await?;
        if package.digest != digest {
            return Err(another());
        }
        let networks = self.networks_for(&package, like).await?;
        let of_template = networks.values().cloned().collect();
        let host = self.host_for(place, ready(Ok(of_template))).await?;
        let note = self.laid.new_note(digest, &place.at.datastore, package.defaults);
        self.laid.begin(&note, permit).await?;
        let config = ConfigSpec::new().bios_uuid(&note.uuid.to_string()).extra(IMAGE, digest).annotation(ANNOTATION);
        let properties = BTreeMap::new();
        let import = Import {
            ova,
            name: &note.name,
            folder: &self.places.templates,
            pool: &place.pool,
            datastore: &place.at.datastore,
            host: host.as_ref(),
            networks,
            properties: &properties,
            option: None,
            config: &config,
            blank_disks: false,
        };
        let changes = self.client.changes(&permit);
        let imported = changes.telling_upload(&*self.uploading).import(&import).await?;
        for warning in imported.warnings {
            log::info!("importing {}: {warning}", ova.display());
        }
        // The sent bytes were compared with the manifest of the file as it was then.
        if Package::read(ova).await?.digest != digest {
            return Err(another());
        }
        self.complete(&imported.vm, &config, permit).await?;
        let changes = self.client.changes(&permit);
        // All data is on vCenter: a request that had no effect is repeated, each time under the permit.
        let what = format!("making the snapshot of {}", note.name);
        let mut patience = RetryBudget::with(&self.client, &what, permit);
        while let Err(error) = changes.create_snapshot(&imported.vm, SNAPSHOT, "The source of clones").await {
            if !may_be_made_later(&error) || !patience.outlasts(error.to_string()).await {
                return Err(self.unmade(&note, error, permit).await);
            }
        }
        let what = format!("making a template of {}", note.name);
        let mut patience = RetryBudget::with(&self.client, &what, permit);
        while let Err(error) = changes.mark_as_template(&imported.vm).await {
            if !may_be_made_later(&error) || !patience.outlasts(error.to_string()).await {
                return Err(self.unmade(&note, error, permit).await);
            }
        }
        self.sealed(&note, &imported.vm, permit).await
    }

    /// Seals the new template: from now on it is an image, as long as it does not change. If that fails, it is tried
    /// again with pauses: a template that is not sealed now never is, and the upload would be wasted.
    async fn sealed(&self, note: &Note, made: &MoRef, permit: &dyn Fence) -> Result<ImageTemplate> {
        let may_pass = |error: &Error| matches!(error.kind, ErrorKind::InDoubt | ErrorKind::Transient);
        let mut tries = self.client.tries();
        let seal = loop {
            match self.seal_of(note, made).await {
                Err(error) if may_pass(&error) => {
                    log::debug!("looking at {} for its seal: {error}", note.name);
                    if !tries.again().await {
                        return Err(error);
                    }
                }
                seal => break seal?,
            }
        };
        let what = format!("sealing {}", note.name);
        let mut patience = RetryBudget::with(&self.client, &what, permit);
        while let Err(error) = self.laid.seal(note, seal.clone(), permit).await {
            if !may_pass(&error) || !patience.outlasts(error.to_string()).await {
                return Err(error);
            }
        }
        Ok(as_staged(&made.id, &note.digest))
    }

    /// The seal of the new template, once its settings stay the same.
    async fn seal_of(&self, note: &Note, made: &MoRef) -> Result<TemplateFingerprint> {
        let now = self.at_rest(made).await?;
        let is_it = now.name == note.name && is_noted(note, &now);
        let Some(seal) = TemplateFingerprint::of(&now).filter(|_| is_it) else {
            return Err(Error::transient(anyhow::anyhow!("{} was imported and is no whole template", now.name)));
        };
        let (version, config) = self.config_of(made).await?;
        if version != seal.version {
            return Err(not_now(format!("the settings of {} were changed just now: it is not used", now.name)));
        }
        Ok(TemplateFingerprint { parts: parts(&config), ..seal })
    }

    /// A template whose settings no longer change by themselves. A host's changes may reach vCenter after the task has
    /// ended.
    async fn at_rest(&self, made: &MoRef) -> Result<vsphere::Vm> {
        let mut before = self.client.vm(made).await?;
        for _ in 1..LOOKS {
            tokio::time::sleep(self.rest).await;
            let now = self.client.vm(made).await?;
            if now.change_version == before.change_version {
                return Ok(now);
            }
            before = now;
        }
        Err(not_now(format!("the settings of {} change all the time: it is not used", before.name)))
    }

    /// The networks of an OVA, all mapped to the template's network. vCenter chooses if none is known.
    pub(super) async fn networks_for(
        &self,
        package: &Package,
        like: Option<&vsphere::Vm>,
    ) -> Result<BTreeMap<String, MoRef>> {
        let network = match (self.places.networks.first(), like) {
            (Some((network, _)), _) => Some(network.clone()),
            (None, Some(like)) => self.client.look(&like.reference, &["network"]).await?.references_at("network").pop(),
            (None, None) => None,
        };
        let of = |network: MoRef| package.networks.iter().map(move |name| (name.clone(), network.clone()));
        Ok(network.into_iter().flat_map(of).collect())
    }
}

/// Whether a VM has the noted BIOS UUID.
fn is_noted(note: &Note, vm: &vsphere::Vm) -> bool {
    vm.bios_uuid.parse() == Ok(note.uuid)
}

/// Whether a VM may be an incomplete import, in the folder of templates.
fn is_half(note: &Note, vm: &vsphere::Vm, folder: &MoRef) -> bool {
    let is_it = vm.name == note.name && is_noted(note, vm) && vm.folder.as_ref() == Some(folder);
    is_it && vm.power == Power::Off && !vm.is_template && vm.devices.disks.len() <= 1
}

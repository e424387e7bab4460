//! Images as templates: which are complete, and where. A template counts only if this deployment has sealed it and it
//! has not changed since.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use ova::Sha256;
use ova::archive::Archive;
use ova::ovf::Descriptor;
use vsphere::{Element, MoRef, Outcome};

use super::VcenterHypervisor;
use super::place::At;
use super::template_catalog::{CHANGED, Note, TemplateFingerprint};
use super::trouble::{changed, not_now};
use crate::hypervisor::{Error, ErrorKind, ImageTemplate, Placement, Result, Vm};

/// How often a template is looked at if it changes between two looks.
const TRIES: usize = 3;

pub(super) enum Standing {
    /// It has not changed.
    Whole(Box<vsphere::Vm>),
    /// It no longer exists.
    Gone,
    /// It has changed, in these parts.
    Altered(String),
}

/// An image: the template, and its note.
pub(super) struct Image {
    pub(super) template: vsphere::Vm,
    pub(super) note: Note,
}

/// The template in the types of the hypervisor contract.
pub(super) fn as_staged(reference: &str, digest: &str) -> ImageTemplate {
    ImageTemplate { digest: digest.to_owned(), reference: reference.to_owned() }
}

/// The digest of an OVA's manifest, and the default values of its properties.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Package {
    pub(super) digest: String,
    /// By the names that guests use.
    pub(super) defaults: BTreeMap<String, String>,
    pub(super) networks: Vec<String>,
}

impl Package {
    /// Reads the manifest of an OVA, and the descriptor if it matches the manifest.
    pub(super) async fn read(ova: &Path) -> Result<Self> {
        let path = ova.to_owned();
        match tokio::task::spawn_blocking(move || Self::read_here(&path)).await {
            Ok(package) => package.map_err(Error::refused),
            Err(panic) => std::panic::resume_unwind(panic.into_panic()),
        }
    }

    fn read_here(path: &Path) -> anyhow::Result<Self> {
        let archive = Archive::open(path)?;
        let manifest = archive.manifest()?;
        let manifest = manifest.ok_or_else(|| anyhow::anyhow!("{} has no manifest", path.display()))?;
        let xml = archive.descriptor_xml()?;
        let name = &archive.members()[0].name;
        if manifest.digest(name) != Some(Sha256::of(xml.as_bytes())) {
            anyhow::bail!("{name} in {} is not what the manifest says", path.display());
        }
        let descriptor = Descriptor::parse(&xml)?;
        Ok(Self {
            digest: ImageTemplate::digest_of(&manifest),
            defaults: defaults(&descriptor),
            networks: descriptor.networks.into_iter().map(|network| network.name).collect(),
        })
    }
}

/// The default values of the properties. A property's name in the guest is `[class.]key[.instance]` (DSP0243 1.1 §9.5).
fn defaults(descriptor: &Descriptor) -> BTreeMap<String, String> {
    let product = &descriptor.product;
    let named = |key: &str| {
        let parts = [product.class.as_deref(), Some(key), product.instance.as_deref()];
        parts.into_iter().flatten().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(".")
    };
    let properties = product.properties();
    properties.map(|property| (named(&property.key), property.default.clone().unwrap_or_default())).collect()
}

impl VcenterHypervisor {
    pub(super) async fn found_staged(
        &self,
        digest: &str,
        like: Option<&Vm>,
        placement: &Placement,
    ) -> Result<Option<ImageTemplate>> {
        let at = self.datastore_beside(like, placement).await?;
        let mut unknown = None;
        for note in self.laid.notes_of(digest).await? {
            let Some(seal) = note.seal.as_ref().filter(|_| note.datastore == at.datastore.id) else { continue };
            match self.standing(seal).await {
                Ok(Standing::Whole(_)) => return Ok(Some(as_staged(&seal.reference, digest))),
                Ok(Standing::Gone | Standing::Altered(_)) => {}
                // Another one may be complete.
                Err(error) => {
                    unknown.get_or_insert(error.context(format!("looking at the template {}", note.name)));
                }
            }
        }
        match unknown {
            Some(error) => Err(error),
            None => Ok(None),
        }
    }

    /// The names of all templates that this deployment has imported, complete or incomplete, and that are still in
    /// their folder.
    pub async fn laid_ready(&self) -> Result<Vec<String>> {
        let noted: BTreeSet<String> = self.laid.all().await?.into_iter().map(|note| note.name).collect();
        if noted.is_empty() {
            return Ok(Vec::new());
        }
        let there = self.client.entries_in(&self.places.templates, false, &[]).await?;
        let names = there.vms.into_iter().map(|vm| vm.name).chain(there.unread.into_iter().map(|vm| vm.name));
        let mut names: Vec<String> = names.filter(|name| noted.contains(name)).collect();
        names.sort();
        Ok(names)
    }

    /// The datastore for the images of a placement.
    pub(super) async fn datastore_beside(&self, like: Option<&Vm>, placement: &Placement) -> Result<At> {
        match like {
            Some(vm) if placement.datastore.is_none() => {
                let like = self.named(&vm.reference).await?;
                self.datastore(Some(&like), placement).await
            }
            _ => self.datastore(None, placement).await,
        }
    }

    pub(super) async fn standing(&self, seal: &TemplateFingerprint) -> Result<Standing> {
        for _ in 0..TRIES {
            let vm = match self.client.whole_vm(&MoRef::vm(&seal.reference)).await {
                Ok(vm) => vm,
                Err(error) if error.outcome() == Outcome::NotFound => return Ok(Standing::Gone),
                // It was moved to where the account has no privilege, or the privilege was revoked.
                Err(error) if error.outcome() == Outcome::Denied => {
                    return Ok(Standing::Altered("this account may not read it".to_owned()));
                }
                Err(error) => return Err(error.into()),
            };
            match seal.broken(&vm) {
                None => return Ok(Standing::Whole(Box::new(vm))),
                Some(CHANGED) => match self.altered(seal, &vm).await? {
                    Some(parts) if parts.is_empty() => return Ok(Standing::Whole(Box::new(vm))),
                    Some(parts) => return Ok(Standing::Altered(format!("{CHANGED} ({})", parts.join(", ")))),
                    // Another clone of it, which counts as a change, began between the two looks.
                    None => {}
                },
                Some(what) => return Ok(Standing::Altered(what.to_owned())),
            }
        }
        Err(not_now("its settings have another version at each look".to_owned()))
    }

    /// For a template with a new version of its settings: the parts that have changed since it was sealed. `None` if
    /// all parts are unchanged and the version changed again since the look: the caller looks again.
    async fn altered(&self, seal: &TemplateFingerprint, seen: &vsphere::Vm) -> Result<Option<Vec<String>>> {
        match self.config_of(&seen.reference).await {
            Ok((version, config)) => {
                let parts = seal.altered(&config);
                Ok((!parts.is_empty() || version == seen.change_version).then_some(parts))
            }
            Err(error) if matches!(error.kind, ErrorKind::NotFound | ErrorKind::Denied) => {
                Ok(Some(vec![error.to_string()]))
            }
            Err(error) => Err(error),
        }
    }

    /// Whether a template's settings, just looked at again, are those that were sealed. The version may differ: other
    /// clones may count as changes at any moment.
    pub(super) async fn is_as_sealed(&self, note: &Note, seen: &vsphere::Vm) -> Result<bool> {
        match &note.seal {
            Some(seal) if seal.version == seen.change_version => Ok(true),
            Some(seal) => Ok(seal.altered(&self.config_of(&seen.reference).await?.1).is_empty()),
            None => Ok(false),
        }
    }

    /// The settings of a template and their version.
    pub(super) async fn config_of(&self, template: &MoRef) -> Result<(String, Element)> {
        let seen = self.client.look(template, &["config"]).await?;
        let config = seen.need("config")?.clone();
        Ok((config.text_of("changeVersion").unwrap_or_default().to_owned(), config))
    }

    /// The sealed template.
    pub(super) async fn image(&self, staged: &ImageTemplate) -> Result<Image> {
        let ImageTemplate { digest, reference } = staged;
        let is_it = |note: &Note| note.seal.as_ref().is_some_and(|seal| seal.reference == *reference);
        // Notes of other images, in any number, do not hide a note of this image.
        let mut found = self.laid.notes_of(digest).await?.into_iter().find(is_it);
        if found.is_none() {
            found = self.laid.all().await?.into_iter().find(is_it);
        }
        let unknown = || Error::not_found(format!("{reference} is no template that this deployment has imported"));
        let note = found.ok_or_else(unknown)?;
        let name = &note.name;
        if note.digest != *digest {
            return Err(Error::refused(format!("the template {name} is not of the image that was planned with")));
        }
        let Some(seal) = &note.seal else { return Err(unknown()) };
        match self.standing(seal).await? {
            Standing::Whole(template) => Ok(Image { template: *template, note }),
            Standing::Gone => Err(Error::not_found(format!("the template {name} no longer exists"))),
            Standing::Altered(what) => {
                Err(changed(format!("the template {name} is not as it was when it was imported: {what}")))
            }
        }
    }
}

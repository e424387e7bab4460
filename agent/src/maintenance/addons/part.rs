//! Groups of objects that the agent applies together, and which of them exist.

use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;

use anyhow::Context as _;
use contract::properties::CLUSTER_METRICS;
use serde_json::Value;

use crate::cluster::addons::{self, AddOn, metrics_server};
use crate::cluster::kubernetes::CA_CERTIFICATE;
use crate::cluster::kubernetes::api;
use crate::cluster::kubernetes::objects::named;
use crate::host::command::Runner;
use crate::host::files;
use crate::upgrade::swap::context::SwapContext;

/// Gives the cluster's object of the kind and name of another one, if there is one.
pub(super) type Find<'a> = &'a dyn Fn(&Value) -> anyhow::Result<Option<Value>>;

/// An add-on, or another group of objects that is applied at once.
pub(super) struct Part {
    pub(super) name: &'static str,
    /// Marks its objects. `None` if they are applied again each time.
    mark: Option<String>,
    kinds: Option<String>,
    objects: Vec<Value>,
    /// Objects that are made elsewhere, with kind and name alone.
    beside: Vec<Value>,
}

impl Part {
    /// All that the cluster should have.
    pub(super) fn all(context: &SwapContext, wanted: &[AddOn]) -> anyhow::Result<Vec<Self>> {
        let mut all =
            wanted.iter().map(|add_on| Self::of(&context.root, add_on)).collect::<anyhow::Result<Vec<_>>>()?;
        let unmarked = |name, objects| Self { name, mark: None, kinds: None, objects, beside: Vec::new() };
        if context.config.role.takes_workers() {
            let authority = files::below(&context.root, CA_CERTIFICATE);
            let authority = fs::read_to_string(authority).context("reading the certificate of the cluster's CA")?;
            all.push(unmarked("what workers join with", addons::workers(&context.config, &authority)));
            all.push(unmarked("which nodes may come", addons::node_admission_policies(&context.config)));
        }
        let policies = addons::pod_policies::objects(context.config.cluster.pod_security);
        all.push(unmarked("the policies on pods", policies));
        Ok(all)
    }

    fn of(root: &Path, add_on: &AddOn) -> anyhow::Result<Self> {
        let mut add_on = add_on.clone();
        if let Some(file) = add_on.listed.take() {
            let listed = fs::read(files::below(root, &file)).map_err(anyhow::Error::from);
            let whole = listed.and_then(|text| Ok(add_on.with_listed(&text)?));
            add_on = whole.with_context(|| format!("reading {file}"))?;
        }
        let AddOn { name, mark, kinds, objects, listed: _ } = add_on;
        let beside = if name == CLUSTER_METRICS { metrics_server::beside() } else { Vec::new() };
        Ok(Self { name, mark: Some(mark), kinds, objects, beside })
    }

    pub(super) fn absent(&self, find: Find<'_>) -> anyhow::Result<Vec<String>> {
        let mut absent = Vec::new();
        for object in self.objects.iter().chain(&self.beside) {
            if find(object)?.is_none() {
                absent.push(named(object));
            }
        }
        Ok(absent)
    }

    /// Whether each object exists, with this build and these settings. kubectl may have been killed between two objects.
    pub(super) fn is_current(&self, find: Find<'_>) -> anyhow::Result<bool> {
        let Some(mark) = &self.mark else { return Ok(false) };
        for object in &self.objects {
            let there = find(object)?;
            if there.is_none_or(|there| there["metadata"]["annotations"][addons::BUILD] != mark.as_str()) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    pub(super) fn is_marked(&self) -> bool {
        self.mark.is_some()
    }

    /// After an error applying again completes it.
    pub(super) fn apply(&self, runner: &dyn Runner, address: Ipv4Addr) -> anyhow::Result<()> {
        if let Some(kinds) = &self.kinds {
            api::apply_kinds(runner, address, kinds).with_context(|| format!("applying the kinds of {}", self.name))?;
        }
        api::apply(runner, address, &self.objects).with_context(|| format!("applying {}", self.name))?;
        Ok(())
    }
}

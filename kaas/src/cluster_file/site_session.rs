//! A site for the duration of one command: one runtime, in which its connections live.

use std::rc::Rc;

use anyhow::Context;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;

use super::file::ClusterFile;
use super::provider::Site;
use crate::signals::{SignalPolicy, until_ended};

/// A site that answers. It is closed when the value is dropped.
pub struct SiteSession {
    site: Box<dyn Site>,
    runtime: Rc<Runtime>,
}

impl SiteSession {
    /// Contacts the provider of a described cluster.
    pub fn of(file: &ClusterFile) -> anyhow::Result<Self> {
        Self::with(|runtime| file.provider.open(&file.name.value, &file.snapshots, runtime))
    }

    /// Opens a site that needs no description.
    pub fn with(open: impl FnOnce(&Rc<Runtime>) -> anyhow::Result<Box<dyn Site>>) -> anyhow::Result<Self> {
        let runtime = Rc::new(Builder::new_current_thread().enable_all().build().context("starting a runtime")?);
        Ok(Self { site: open(&runtime)?, runtime })
    }

    /// Runs `act`, and ends as signals demand. Then this does not return.
    pub fn run<T>(
        &self,
        ending: SignalPolicy,
        act: impl AsyncFnOnce(watch::Receiver<bool>) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        until_ended(&self.runtime, ending, act, || self.site.close())
    }
}

impl std::ops::Deref for SiteSession {
    type Target = dyn Site;

    fn deref(&self) -> &Self::Target {
        &*self.site
    }
}

impl Drop for SiteSession {
    fn drop(&mut self) {
        self.site.close();
    }
}

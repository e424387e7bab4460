//! A site for as long as one command works on it: one runtime, in which its connections live.

use std::rc::Rc;

use anyhow::Context;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::watch;

use super::file::ClusterFile;
use super::provider::Site;
use crate::signals::{SignalPolicy, until_ended};

/// A site that answers. What it holds open is given back when the value goes.
pub struct SiteSession {
    site: Box<dyn Site>,
    runtime: Rc<Runtime>,
}

impl SiteSession {
    /// Reaches what runs the VMs of a cluster that is described.
    ///
    /// # Errors
    /// When it cannot be reached, or is not as it is described.
    pub fn of(file: &ClusterFile) -> anyhow::Result<Self> {
        Self::with(|runtime| file.provider.open(&file.name.value, &file.snapshots, runtime))
    }

    /// The same of a site that needs no description.
    ///
    /// # Errors
    /// When there is no runtime, or `open` fails.
    pub fn with(open: impl FnOnce(&Rc<Runtime>) -> anyhow::Result<Box<dyn Site>>) -> anyhow::Result<Self> {
        let runtime = Rc::new(Builder::new_current_thread().enable_all().build().context("starting a runtime")?);
        Ok(Self { site: open(&runtime)?, runtime })
    }

    /// Does something, and ends as the command is asked to: then this does not return.
    ///
    /// # Errors
    /// As `act`; or signals cannot be taken.
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

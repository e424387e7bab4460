//! An API server that a leader uses during its term only. After the term a lease in it cannot be confirmed, so no call begins.
//! All callers here share the lists of addresses in use, and the ledger of clusters and Machines. The ledger hears their answers.

use std::sync::Arc;

use async_trait::async_trait;
use serde_json::Value;

use super::failure::Failure;
use super::in_use::{AddressesInUse, Lists};
use super::objects::{Collection, ControlCluster, Objects, list_inventory};
use super::usage_ledger::UsageLedger;
use crate::decisions::ClusterInventory;
use crate::objects::PoolAddress;
use crate::term::Term;

pub struct Fenced {
    objects: Arc<dyn Objects>,
    term: Term,
    lists: Lists,
    ledger: UsageLedger,
    control_cluster: ControlCluster,
}

impl Fenced {
    pub fn new(objects: Arc<dyn Objects>, term: Term) -> Self {
        let (lists, ledger) = (Lists::default(), UsageLedger::default());
        Self { objects, term, lists, ledger, control_cluster: ControlCluster::default() }
    }

    /// The API server of this control cluster.
    pub fn of(self, control_cluster: ControlCluster) -> Self {
        Self { control_cluster, ..self }
    }

    /// As [`Self::within`], for a write. The ledger hears the answer.
    async fn written(
        &self,
        of: &Collection,
        asked: impl Future<Output = Result<Value, Failure>> + Send,
    ) -> Result<Value, Failure> {
        let awaited = self.ledger.awaits(of);
        let answer = self.within(asked).await;
        awaited.hears(&answer);
        answer
    }

    /// An answer that arrives after the term is discarded: the next leader may have changed the object since.
    async fn within<T>(&self, asked: impl Future<Output = Result<T, Failure>> + Send) -> Result<T, Failure> {
        self.term.ensure_active()?;
        let answer = asked.await;
        self.term.ensure_active()?;
        answer
    }
}

#[async_trait]
impl Objects for Fenced {
    fn control_cluster(&self) -> ControlCluster {
        self.control_cluster
    }

    async fn list(&self, of: &Collection, label: Option<(&str, &str)>) -> Result<Vec<Value>, Failure> {
        self.within(self.objects.list(of, label)).await
    }

    async fn in_use(&self, since: Option<u64>) -> Result<Arc<AddressesInUse>, Failure> {
        let of = Collection::of::<PoolAddress>(None);
        // The caller that makes the list may have waited for its turn until after the term.
        let list = self.list(&of, None);
        self.within(self.lists.ask(since, list)).await
    }

    async fn inventory(&self) -> Result<Arc<ClusterInventory>, Failure> {
        self.within(self.ledger.ask(|| list_inventory(self))).await
    }

    async fn get(&self, of: &Collection, name: &str) -> Result<Value, Failure> {
        let found = self.within(self.objects.get(of, name)).await?;
        self.ledger.hears(of, &found);
        Ok(found)
    }

    async fn create(&self, of: &Collection, object: &Value) -> Result<Value, Failure> {
        self.written(of, self.objects.create(of, object)).await
    }

    async fn replace(&self, of: &Collection, object: &Value) -> Result<Value, Failure> {
        self.written(of, self.objects.replace(of, object)).await
    }

    async fn replace_status(&self, of: &Collection, object: &Value) -> Result<Value, Failure> {
        self.written(of, self.objects.replace_status(of, object)).await
    }

    async fn patch(&self, of: &Collection, name: &str, part: &Value) -> Result<Value, Failure> {
        self.written(of, self.objects.patch(of, name, part)).await
    }

    async fn patch_status(&self, of: &Collection, name: &str, part: &Value) -> Result<Value, Failure> {
        self.written(of, self.objects.patch_status(of, name, part)).await
    }

    async fn delete(&self, of: &Collection, name: &str) -> Result<(), Failure> {
        self.within(self.objects.delete(of, name)).await
    }

    async fn delete_as_read(&self, of: &Collection, object: &Value) -> Result<(), Failure> {
        self.within(self.objects.delete_as_read(of, object)).await
    }
}

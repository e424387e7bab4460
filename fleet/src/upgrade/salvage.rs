//! What can still be had of a journal that cannot be read: that it is damaged, and its plan. Each hold begins with a
//! copy of what the one before had, so the plan is there several times.

use anyhow::Context;

use super::entry::{Entry, parse, plan_of};
use super::journal::{self, FILE};
use super::plan::Plan;
use super::reason::{self, Reason};
use crate::authority::{Store, sorted};

/// Why the journal cannot be read; none if it can, or there is none.
///
/// # Errors
/// When the store cannot be read: that says nothing of the journal.
pub(super) async fn damage(store: &dyn Store) -> anyhow::Result<Option<anyhow::Error>> {
    let read = match journal::last(store).await {
        Ok(Some(text)) => parse(&text).context("reading the journal").map(drop),
        other => other.map(drop),
    };
    let Err(damage) = read else { return Ok(None) };
    // The same error comes of a store that does not answer.
    for number in store.numbers().await.context("looking for the journal")? {
        store.read(number, FILE).await.with_context(|| format!("reading the journal of hold {number}"))?;
    }
    Ok(Some(damage))
}

/// The plan of the last hold in which one is understood.
///
/// # Errors
/// When the store cannot be read.
pub(super) async fn plan(store: &dyn Store) -> anyhow::Result<Option<Plan>> {
    let numbers = sorted(store).await.context("looking for a plan")?;
    for number in numbers.into_iter().rev() {
        let text = store.read(number, FILE).await.with_context(|| format!("looking for a plan in hold {number}"))?;
        let entries: Vec<Entry> = text
            .iter()
            .flat_map(|text| text.lines())
            .filter_map(|line| serde_json::from_str(line).ok())
            .take(1)
            .collect();
        if let Some(plan) = plan_of(&entries) {
            return Ok(Some(plan.clone()));
        }
    }
    Ok(None)
}

/// Why an upgrade ends of which only the plan is known.
pub(super) fn unknown(damage: &anyhow::Error) -> Reason {
    let words = format!(
        "asked for by the operator, with a journal that cannot be read. Which steps were taken, which VMs they made and \
         where a disk was moved to is not known: compare the VMs with the plan. {damage:#}"
    );
    Reason::new(reason::ASKED, words)
}

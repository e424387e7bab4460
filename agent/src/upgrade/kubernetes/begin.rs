use contract::codes;
use contract::kubernetes_upgrade::Request;
use contract::swap::Rejection;
use uuid::Uuid;

use super::{judge, look};
use crate::cluster::kubernetes::upgrade::UpgradeRecord;
use crate::cluster::records::Records;
use crate::host::command::Runner;
use crate::upgrade::swap::context::SwapContext;
use crate::upgrade::swap::manager::SwapManager;

/// Begins an upgrade, or returns that it is under way. False if nothing is to be done: the node runs the minor version,
/// or the request was only a check. After a refusal nothing was changed.
pub fn begin(manager: &SwapManager, request: &Request, runner: &dyn Runner) -> Result<bool, Rejection> {
    let context = manager.context().ok_or_else(|| {
        let reason = "this node has not come far enough since power-on: ask again in a moment";
        Rejection::of(&codes::KUBERNETES_NOT_READY, reason)
    })?;
    let failed = |error: anyhow::Error| Rejection::of(&codes::KUBERNETES_FAILED, format!("{error:#}"));
    let records = context.records();
    if let Some(begun) = records.entry::<UpgradeRecord>().map_err(failed)?.filter(UpgradeRecord::is_under_way) {
        return match begun.to == request.to {
            true => Ok(true),
            false => {
                let reason = format!("the upgrade of this node to Kubernetes {} is under way", begun.to);
                Err(Rejection::of(&codes::KUBERNETES_ANOTHER, reason))
            }
        };
    }
    if context.config.cluster.kubernetes_minor == request.to {
        return Ok(false);
    }
    judge::judge(&look::look(&context, &request.to, in_the_way(manager), runner))?;
    let release = context.image.kubernetes(&request.to);
    let version = release.map_or_else(|| request.to.clone(), |release| release.version.clone());
    look::preflight(&context, &request.to, &version, runner)?;
    if request.check {
        return Ok(false);
    }
    save(&context, &records, request).map_err(failed)?;
    Ok(true)
}

/// The swap or the evacuation of this node that blocks an upgrade, in words.
fn in_the_way(manager: &SwapManager) -> Option<String> {
    let swap = manager.state().map(|swap| format!("the swap {} is under way or not committed", swap.id));
    let evacuation = manager.evacuation().filter(|evacuation| evacuation.stage.is_under_way());
    swap.or_else(|| evacuation.map(|evacuation| format!("the evacuation {} is under way", evacuation.id)))
}

fn save(context: &SwapContext, records: &Records, request: &Request) -> anyhow::Result<()> {
    let begun = UpgradeRecord {
        id: Uuid::new_v4(),
        from: context.config.cluster.kubernetes_minor.clone(),
        to: request.to.clone(),
        drain_seconds: request.drain_seconds,
        error: None,
        code: None,
    };
    records.begin_entry(&begun)?;
    context.note(&format!("Kubernetes is being upgraded from {} to {}", begun.from, begun.to));
    Ok(())
}

//! Imports an image to the vCenter of a Provider.

use std::sync::OnceLock;
use std::time::Duration;

use anyhow::{Context, ensure};
use controller::objects::{Provider, SYSTEM, VSphere};
use fleet::engine::GuardedHypervisor;
use fleet::lease::{Lease, TakeOver};
use fleet::upgrade::Target;
use fleet::vcenter::{DatastoreStore, VcenterHypervisor};
use tokio::runtime::Builder;
use tokio::time::timeout;
use vsphere::Client;

use super::place::{connect, datastores, images};
use crate::control::{Control, ResourcePath};
use crate::signals::{SignalPolicy, until_ended};
use crate::uploads::upload_progress;

/// How long to wait for the end of the session, and for the removal of the incomplete import before it.
const LOG_OUT: Duration = Duration::from_secs(5);

/// Imports the image to each datastore of the Provider that does not have it yet. A lease keeps other imports out.
/// After an error, an incomplete template may be left. The next run removes it.
pub fn upload(
    control: &Control,
    provider: &Provider,
    target: &Target,
    over: TakeOver,
    tell: &(dyn Fn(&str) + Sync),
) -> anyhow::Result<()> {
    let described =
        provider.spec.vsphere.as_ref().context("the Provider is of a type that this version does not know")?;
    let name = &provider.spec.credentials_ref.name;
    let secret = control.get(ResourcePath::within("secrets", SYSTEM), name)?;
    let secret = secret.with_context(|| format!("there is no Secret {name} in {SYSTEM}"))?;
    let connect = connect(described, &secret)?;
    let runtime = Builder::new_current_thread().enable_all().build().context("starting a runtime")?;
    // On a signal, the command ends at once and cancels its upload. Otherwise the next command would wait for the uploaded
    // part.
    let session = OnceLock::new();
    let leave = || {
        if let Some(client) = session.get() {
            runtime.block_on(log_out(client));
        }
    };
    until_ended(
        &runtime,
        SignalPolicy::AtOnce,
        async |_| {
            let client = Client::connect(connect).await?;
            let client = session.get_or_init(|| client);
            let laid = lay(client, (provider, described), target, over, tell).await;
            log_out(client).await;
            laid
        },
        leave,
    )
}

async fn log_out(client: &Client) {
    match timeout(LOG_OUT, client.log_out()).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => log::debug!("{error}"),
        Err(_) => log::debug!("the end of the session was not answered"),
    }
}

async fn lay(
    client: &Client,
    (provider, described): (&Provider, &VSphere),
    target: &Target,
    over: TakeOver,
    tell: &(dyn Fn(&str) + Sync),
) -> anyhow::Result<()> {
    let about = &client.service().about;
    let before = provider.status.as_ref().and_then(|status| status.instance_uuid.as_deref());
    // The instance UUID that the controller has seen. Nothing is sent to another vCenter under the same name.
    ensure!(
        before.is_none_or(|before| before.eq_ignore_ascii_case(&about.instance_uuid)),
        "the vCenter is another one than before under the same name: {} and not {}",
        about.instance_uuid,
        before.unwrap_or_default()
    );
    let (library, site) = images(described, about)?;
    let hypervisor = VcenterHypervisor::new(client.clone(), library.id, &site, &library.journal).await?;
    let hypervisor = hypervisor.telling_upload(upload_progress());
    let store = DatastoreStore::new(client.clone(), &described.datacenter, library.journal).await?;
    let hold = Lease::acquire(&store, "image push", over, tell).await?;
    let laid = async {
        let hypervisor = GuardedHypervisor::new(&hypervisor, &hold, None);
        for (datastore, placement) in datastores(described) {
            tell(&format!("laying it on the datastore {datastore}"));
            let (ova, digest) = (&target.ova, &target.digest);
            let staged = hypervisor.import_template(ova, digest, None, &placement, &hypervisor.call()).await;
            staged.with_context(|| format!("laying the image on the datastore {datastore}"))?;
        }
        anyhow::Ok(())
    };
    let laid = laid.await;
    hold.release().await;
    laid
}

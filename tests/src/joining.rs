//! Workers that are created by hand. Their forms are filled in as no command of the project would do it.

use std::net::Ipv4Addr;

use contract::properties as keys;
use contract::role::Role;
use fleet::hypervisor::Stamp;
use fleet::workers::Token;
use lab::{NewVm, Source};
use uuid::Uuid;

use crate::by_hand::insert_cdrom;
use crate::scenario::{MOMENT, Scenario, with};

/// A worker's VM, and the form by which it joins.
pub struct ManualWorker<'a> {
    scenario: &'a Scenario,
    pub vm: String,
    form: String,
}

impl<'a> ManualWorker<'a> {
    /// Creates the VM of a tenant's node in the container engine, powered off: from `source`, or else from the
    /// tenant's. Its form is valid.
    pub fn import(
        scenario: &'a Scenario,
        vm: &str,
        (node, address): (&str, Ipv4Addr),
        token: &Token,
        source: Option<Source>,
    ) -> Self {
        let lab = scenario.lab();
        let prefix = lab.plan().tenant.as_ref().expect("a tenant").prefix;
        let mut properties = lab.site().unwrap_or_else(|error| panic!("{error:#}")).0;
        properties.extend([
            (keys::ROLE.to_owned(), Role::Worker.to_string()),
            (keys::NODE_NAME.to_owned(), node.to_owned()),
            (keys::ADDRESS.to_owned(), format!("{address}/{prefix}")),
            (keys::JOIN_TOKEN.to_owned(), token.joined().expose().to_owned()),
        ]);
        // No command takes it for a control-plane node, or for one of its workers.
        let stamp = Stamp { deployment: Uuid::new_v4(), node: node.to_owned(), swap: None };
        let new = NewVm { data_disk: None, source, stamp: Some(stamp), ..scenario.vm(vm, properties) };
        lab.import(&new).unwrap_or_else(|error| panic!("{error:#}"));
        let form = lab.environment(vm).unwrap_or_else(|error| panic!("{error:#}"));
        Self { scenario, vm: vm.to_owned(), form }
    }

    /// Replaces the form in its drive by one with these values.
    pub fn is_given(&self, values: &[(&str, &str)]) {
        let form = values.iter().fold(self.form.clone(), |form, (key, value)| with(&form, key, value));
        insert_cdrom(self.scenario, &self.vm, &form);
    }

    /// Waits until its console shows an error with this code and these words.
    pub fn is_refused(&self, code: &str, words: &str) {
        let lab = self.scenario.lab();
        self.scenario.wait(&format!("{} to be refused with {code}: {words}", self.vm), MOMENT, || {
            let said = lab.refusals_of(&self.vm);
            let is_it = |one: &String| one.starts_with(&format!("{code}: ")) && one.contains(words);
            anyhow::ensure!(said.iter().any(is_it), "it says {said:?}");
            Ok(true)
        });
    }
}

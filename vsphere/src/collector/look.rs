//! Reads properties.

use crate::client::Client;
use crate::error::{Error, Result};
use crate::method::{
    CONTINUE_RETRIEVE_PROPERTIES, CREATE_CONTAINER_VIEW, DESTROY_VIEW, Effect, Method, RETRIEVE_PROPERTIES,
};
use crate::reference::MoRef;
use crate::soap::Element;

use super::object::Object;

/// The number of attempts to read a list. An ended session is a reason to read it again.
const TRIES: usize = 3;

impl Client {
    /// Reads properties of an object.
    pub async fn look(&self, object: &MoRef, paths: &[&str]) -> Result<Object> {
        let mut found = self.look_at(std::slice::from_ref(object), paths).await?;
        let not_there = || Error::not_found(format!("looking at {object}"), "vCenter shows no such object");
        found.pop().ok_or_else(not_there)
    }

    /// Reads properties of several objects. The answer has any order. The objects may have different kinds if all have
    /// the properties. Fails if one of them does not exist.
    pub async fn look_at(&self, objects: &[MoRef], paths: &[&str]) -> Result<Vec<Object>> {
        if objects.is_empty() {
            return Ok(Vec::new());
        }
        let of_objects =
            objects.iter().map(|object| Element::new("objectSet").with([Element::reference("obj", object)]));
        let spec = filter(objects.iter().map(|object| object.kind.as_str()), paths).with(of_objects);
        for _ in 0..TRIES {
            match self.pages(RETRIEVE_PROPERTIES, &spec).await {
                Err(Error::SessionLost { .. }) => {}
                found => return found,
            }
        }
        Err(Error::SessionLost { attempt: "reading properties".to_owned() })
    }

    /// Reads properties of all objects of some kinds in a folder, a resource pool or a compute resource. With `deep`,
    /// also of objects further below.
    pub async fn list(&self, container: &MoRef, kinds: &[&str], deep: bool, paths: &[&str]) -> Result<Vec<Object>> {
        let manager = self.service().manager("viewManager")?;
        for _ in 0..TRIES {
            let arguments = std::iter::once(Element::reference("container", container))
                .chain(kinds.iter().map(|kind| Element::text("type", kind)))
                .chain([Element::text("recursive", deep)]);
            let response = self.call(CREATE_CONTAINER_VIEW, &manager, arguments.collect()).await?;
            let view = response.need_reference("returnval")?;
            let spec = filter(kinds.iter().copied(), paths).with([in_view(&view)]);
            // The view ends with the session. A repeated request would not find it.
            let retrieve = Method { effect: Effect::OfSession, ..RETRIEVE_PROPERTIES };
            let found = self.pages(retrieve, &spec).await;
            if let Err(Error::SessionLost { .. }) = found {
                continue;
            }
            if let Err(error) = self.call(DESTROY_VIEW, &view, Vec::new()).await {
                log::debug!("giving a view back, which goes with the session: {error}");
            }
            return found;
        }
        Err(Error::SessionLost { attempt: format!("listing what is in {container}") })
    }

    /// Reads all pages of an answer.
    async fn pages(&self, first: Method, spec: &Element) -> Result<Vec<Object>> {
        let collector = self.service().manager("propertyCollector")?;
        let options = Element::new("options").with([Element::text("maxObjects", self.settings().page)]);
        let mut response = self.call(first, &collector, vec![spec.clone(), options]).await?;
        let mut objects = Vec::new();
        // An answer without a result has no objects.
        while let Some(result) = response.child("returnval") {
            for content in result.all("objects") {
                objects.push(Object::read(content)?);
            }
            let Some(token) = result.text_of("token").filter(|token| !token.is_empty()) else { break };
            let token = Element::text("token", token);
            response = self.call(CONTINUE_RETRIEVE_PROPERTIES, &collector, vec![token]).await?;
        }
        Ok(objects)
    }
}

/// The beginning of a `PropertyFilterSpec`.
pub(super) fn filter<'a>(kinds: impl Iterator<Item = &'a str>, paths: &[&str]) -> Element {
    let mut kinds: Vec<&str> = kinds.collect();
    kinds.sort_unstable();
    kinds.dedup();
    Element::new("specSet").with(kinds.into_iter().map(|kind| {
        Element::new("propSet")
            .with([Element::text("type", kind)])
            .with(paths.iter().map(|path| Element::text("pathSet", path)))
    }))
}

fn in_view(view: &MoRef) -> Element {
    Element::new("objectSet").with([
        Element::reference("obj", view),
        Element::text("skip", true),
        Element::new("selectSet").of("TraversalSpec").with([
            Element::text("type", &view.kind),
            Element::text("path", "view"),
            Element::text("skip", false),
        ]),
    ])
}

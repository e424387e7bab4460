//! Parts of vCenter's answers.

/// `ServiceContent` of a server of this kind.
pub(crate) fn service_content(api_type: &str, api_version: &str) -> String {
    let managers = [
        ("rootFolder", "Folder", "group-d1"),
        ("propertyCollector", "PropertyCollector", "propertyCollector"),
        ("viewManager", "ViewManager", "ViewManager"),
        ("sessionManager", "SessionManager", "SessionManager"),
        ("authorizationManager", "AuthorizationManager", "AuthorizationManager"),
        ("searchIndex", "SearchIndex", "SearchIndex"),
        ("fileManager", "FileManager", "FileManager"),
        ("virtualDiskManager", "VirtualDiskManager", "virtualDiskManager"),
        ("ovfManager", "OvfManager", "OvfManager"),
        ("vStorageObjectManager", "VcenterVStorageObjectManager", "VStorageObjectManager"),
    ];
    let managers: String = managers.iter().map(|(name, kind, id)| reference(name, kind, id)).collect();
    format!(
        "<returnval>{managers}<about><name>VMware</name><fullName>VMware Server {api_version} build-1</fullName>\
         <apiType>{api_type}</apiType><apiVersion>{api_version}</apiVersion><instanceUuid>u</instanceUuid></about></returnval>"
    )
}

/// An element that refers to an object.
pub(crate) fn reference(name: &str, kind: &str, id: &str) -> String {
    format!("<{name} type=\"{kind}\">{id}</{name}>")
}

pub(crate) fn fault(kind: &str, fields: &str) -> String {
    format!(
        "<s:Fault><faultcode>ServerFaultCode</faultcode><faultstring>Said of {kind}.</faultstring><detail>\
         <{kind}Fault xmlns=\"urn:vim25\" xsi:type=\"{kind}\">{fields}</{kind}Fault></detail></s:Fault>"
    )
}

/// An object's properties, as (path, value with its element's attributes).
pub(crate) fn object(kind: &str, id: &str, properties: &[(&str, &str)]) -> String {
    let properties: String = properties
        .iter()
        .map(|(path, value)| format!("<propSet><name>{path}</name>{}</propSet>", in_element("val", value)))
        .collect();
    format!("<objects>{}{properties}</objects>", reference("obj", kind, id))
}

/// A missing property, with the fault that is the reason.
pub(crate) fn missing(kind: &str, id: &str, path: &str, fault: &str) -> String {
    format!(
        "<objects>{}<missingSet><path>{path}</path><fault><fault xsi:type=\"{fault}\"/><localizedMessage>no</localizedMessage>\
         </fault></missingSet></objects>",
        reference("obj", kind, id)
    )
}

/// A page of objects, the answer of `RetrievePropertiesEx`.
pub(crate) fn page(objects: &str, token: Option<&str>) -> String {
    let token = token.map(|token| format!("<token>{token}</token>")).unwrap_or_default();
    format!("<returnval>{token}{objects}</returnval>")
}

/// An answer of `WaitForUpdatesEx` about one object.
pub(crate) fn updates(version: &str, kind: &str, id: &str, changes: &[(&str, &str)]) -> String {
    let changes: String = changes
        .iter()
        .map(|(path, value)| {
            format!("<changeSet><name>{path}</name><op>assign</op>{}</changeSet>", in_element("val", value))
        })
        .collect();
    format!(
        "<returnval><version>{version}</version><filterSet>{}<objectSet><kind>modify</kind>{}{changes}</objectSet>\
         </filterSet></returnval>",
        reference("filter", "PropertyFilter", "f"),
        reference("obj", kind, id)
    )
}

/// A value: `type=X>text` refers to an object. Any other text is the content of the element.
fn in_element(name: &str, value: &str) -> String {
    match value.strip_prefix("type=") {
        Some(rest) => {
            let (kind, id) = rest.split_once('>').unwrap();
            reference(name, kind, id)
        }
        None => format!("<{name}>{value}</{name}>"),
    }
}

/// An answer with the reference of a task.
pub(crate) const TASK: &str = "<returnval type=\"Task\">task-1</returnval>";

/// The update of a task that succeeded.
pub(crate) fn success(result: &str) -> String {
    let result = if result.is_empty() { vec![] } else { vec![("info.result", result)] };
    updates("1", "Task", "task-1", &[&[("info.state", "success")][..], &result].concat())
}

/// The update of a task that failed.
pub(crate) fn failure(fault: &str) -> String {
    let error = format!("<fault xsi:type=\"{fault}\"/><localizedMessage>Said of {fault}.</localizedMessage>");
    updates("1", "Task", "task-1", &[("info.state", "error"), ("info.error", &error)])
}

impl super::Fake {
    /// Sets the ends of the tasks of a method, one after the other.
    pub(crate) fn runs(&self, method: &str, ends: impl IntoIterator<Item = String>) {
        self.says(method, TASK);
        self.says("CreatePropertyCollector", &reference("returnval", "PropertyCollector", "pc-1"));
        self.says("CreateFilter", &reference("returnval", "PropertyFilter", "f"));
        self.replies("WaitForUpdatesEx", ends.into_iter().map(super::Reply::Response));
    }
}

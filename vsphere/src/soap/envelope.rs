//! The envelopes of requests and answers (SOAP 1.1 §4).

use zeroize::Zeroizing;

use super::element::Element;
use super::read::{Unreadable, read};
use super::write::{ForbiddenCharacter, write};
use crate::reference::MoRef;

const OPEN: &str = r#"<?xml version="1.0" encoding="UTF-8"?><soapenv:Envelope xmlns:soapenv="http://schemas.xmlsoap.org/soap/envelope/" xmlns:xsd="http://www.w3.org/2001/XMLSchema" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance">"#;
const BODY: &str = "<soapenv:Body>";
const CLOSE: &str = "</soapenv:Body></soapenv:Envelope>";
const VIM: &str = r#" xmlns="urn:vim25""#;
const PBM: &str = r#" xmlns="urn:pbm""#;

/// The request that calls a method of an object.
pub(crate) fn request(
    method: &str,
    this: &MoRef,
    arguments: Vec<Element>,
) -> Result<Zeroizing<String>, ForbiddenCharacter> {
    envelope(None, VIM, method, this, arguments)
}

/// The request that calls a method of storage policies. Its header has the session, as the value of the session's
/// cookie.
///
/// Source: `Header.Cookie` in `vim25/soap/soap.go` of govmomi, and `SessionCookie` in `client.go` there. The value is
/// without vCenter's quotation marks.
pub(crate) fn policy_request(
    method: &str,
    this: &MoRef,
    arguments: Vec<Element>,
    cookie: Option<&str>,
) -> Result<Zeroizing<String>, ForbiddenCharacter> {
    let value = cookie.and_then(|cookie| cookie.split_once('=')).map(|(_, value)| value.trim_matches('"'));
    let session = value.map(|value| Element::text("vcSessionCookie", value));
    envelope(session.as_ref(), PBM, method, this, arguments)
}

fn envelope(
    header: Option<&Element>,
    namespace: &str,
    method: &str,
    this: &MoRef,
    arguments: Vec<Element>,
) -> Result<Zeroizing<String>, ForbiddenCharacter> {
    let call = Element::new(method).with([Element::reference("_this", this)]).with(arguments);
    let mut text = Zeroizing::new(OPEN.to_owned());
    if let Some(header) = header {
        text.push_str("<soapenv:Header>");
        write(header, "", &mut text)?;
        text.push_str("</soapenv:Header>");
    }
    text.push_str(BODY);
    write(&call, namespace, &mut text)?;
    text.push_str(CLOSE);
    Ok(text)
}

/// The content of an envelope.
#[derive(Debug)]
pub(crate) enum Answered {
    Response(Element),
    Fault(Element),
}

/// Reads the envelope of an answer.
pub(crate) fn answered(method: &str, text: &str) -> Result<Answered, Unreadable> {
    let envelope = read(text)?;
    let body = envelope.child("Body").filter(|_| envelope.name() == "Envelope");
    let body =
        body.ok_or_else(|| Unreadable(format!("it is <{}> and no SOAP envelope with a body", envelope.name())))?;
    let first = body.children().first().ok_or_else(|| Unreadable("its body is empty".to_owned()))?;
    match first.name() {
        "Fault" => Ok(Answered::Fault(first.clone())),
        name if name == format!("{method}Response") => Ok(Answered::Response(first.clone())),
        name => Err(Unreadable(format!("it is <{name}>, which does not answer {method}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_written_in_order_and_escaped() {
        let arguments = vec![
            Element::text("userName", "a&b<c>\"d\"\r\ne"),
            Element::new("spec").of("VAppConfigSpec").with([
                Element::text("value", 7).xsd("int"),
                Element::reference("pool", &MoRef::new("ResourcePool", "resgroup-\"9")),
                Element::new("empty"),
            ]),
        ];
        insta::assert_snapshot!(
            request("Login", &MoRef::new("SessionManager", "SessionManager"), arguments).unwrap().as_str()
        );
    }

    #[test]
    fn forbidden_characters_are_refused_and_not_shown() {
        let arguments = vec![Element::text("password", "very\u{1}secret")];
        let error = request("Login", &MoRef::new("SessionManager", "SessionManager"), arguments).unwrap_err();
        assert_eq!(error.to_string(), "the character U+0001 in password cannot be written in XML; remove it");
    }

    #[test]
    fn types_are_read_by_namespace_whatever_their_prefix() {
        let text = r#"<e:Envelope xmlns:e="http://schemas.xmlsoap.org/soap/envelope/" xmlns:i="http://www.w3.org/2001/XMLSchema-instance"
            xmlns:x="http://www.w3.org/2001/XMLSchema" xmlns:v="urn:vim25"><e:Body><v:GetResponse>
            <v:returnval i:type="v:HostCommunication"><v:key i:type="x:int"> 7 </v:key><v:on>1</v:on>
            <v:vm type="VirtualMachine">vm-1</v:vm></v:returnval></v:GetResponse></e:Body></e:Envelope>"#;
        let Answered::Response(response) = answered("Get", text).unwrap() else { panic!("a fault") };
        let value = response.need("returnval").unwrap();
        assert_eq!(value.kind(), Some("HostCommunication"));
        assert_eq!((value.parsed::<u32>("key"), value.flag("on"), value.flag("key")), (Some(7), true, false));
        assert_eq!(value.reference_of("vm"), Some(MoRef::vm("vm-1")));
        assert_eq!(value.reference_of("on"), None);
        let sent = request("Set", &MoRef::vm("vm-1"), vec![value.clone().named("spec")]).unwrap();
        assert!(sent.contains(r#"<spec xsi:type="HostCommunication"><key xsi:type="xsd:int"> 7 </key>"#), "{}", *sent);
        assert_eq!(format!("{value:?}"), "<returnval HostCommunication>[<key int>, <on>, <vm>]", "texts are not shown");
    }

    #[test]
    fn texts_that_are_no_answer_are_unreadable() {
        let envelope = |body: &str| format!("<Envelope><Body>{body}</Body></Envelope>");
        let deep = format!("{}{}", "<a>".repeat(300), "</a>".repeat(300));
        let cases = [
            (String::new(), "cannot be read"),
            ("<html/>".to_owned(), "<html> and no SOAP envelope"),
            (envelope(""), "body is empty"),
            (envelope("<OtherResponse/>"), "<OtherResponse>, which does not answer Get"),
            (format!("<!DOCTYPE a>{}", envelope("<GetResponse/>")), "cannot be read"),
            (envelope(&deep), "levels deep"),
        ];
        for (text, expected) in cases {
            let error = answered("Get", &text).unwrap_err().to_string();
            assert!(error.contains(expected), "{expected} is not in {error}");
        }
    }
}

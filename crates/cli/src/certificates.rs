//! Certificates for nodes and clients, from an authority made for them: a start for those who have none of
//! their own.

use std::path::Path;

use anyhow::{Context, Result};
use farmem_transport::save_secret;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

/// Makes `authority`, `node` and `client` in a folder, each a `.pem` with the certificate and a `.key` with
/// the private key. The node's certificate names `hosts`. Nothing is overwritten.
///
/// # Errors
/// A sentence: a name that can't be one, or a file that can't be made.
pub(crate) fn make(folder: &Path, hosts: &[String]) -> Result<()> {
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let authority_key = KeyPair::generate()?;
    let mut authority = params(&[], "Farmem authority")?;
    authority.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    authority.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let certificate = authority.self_signed(&authority_key)?;
    save(folder, "authority", &certificate.pem(), &authority_key)?;
    let issuer = Issuer::from_params(&authority, &authority_key);

    let roles = [
        ("node", hosts, "Farmem node", ExtendedKeyUsagePurpose::ServerAuth),
        ("client", &[], "Farmem client", ExtendedKeyUsagePurpose::ClientAuth),
    ];
    for (name, hosts, title, purpose) in roles {
        let key = KeyPair::generate()?;
        let mut params = params(hosts, title)?;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![purpose];
        save(folder, name, &params.signed_by(&key, &issuer)?.pem(), &key)?;
    }
    Ok(())
}

fn params(hosts: &[String], title: &str) -> Result<CertificateParams> {
    let mut params = CertificateParams::new(hosts).context("a certificate cannot name these hosts")?;
    params.distinguished_name.push(DnType::CommonName, title);
    Ok(params)
}

fn save(folder: &Path, name: &str, certificate: &str, key: &KeyPair) -> Result<()> {
    save_secret(&folder.join(format!("{name}.key")), &key.serialize_pem())?;
    save_secret(&folder.join(format!("{name}.pem")), certificate)?;
    Ok(())
}

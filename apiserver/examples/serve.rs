//! Runs a server and writes its kubeconfig: `serve KUBECONFIG [DATA_DIR]`.

use fleet_apiserver::{Access, ApiServer, Config, ServeOptions};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().ok_or_else(|| anyhow::anyhow!("usage: serve KUBECONFIG [DATA_DIR]"))?;
    let config =
        Config { data_dir: arguments.next().map(Into::into), access: Access::Rbac, ..Config::default() };
    let api = ApiServer::open(config).await?;
    let server = api.serve(ServeOptions::default()).await?;
    std::fs::write(&path, server.kubeconfig("fleet"))?;
    println!("https://{}, kubeconfig in {path}", server.local_addr());
    tokio::signal::ctrl_c().await?;
    server.shutdown().await;
    api.shutdown().await;
    Ok(())
}

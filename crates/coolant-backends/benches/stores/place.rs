//! Where stores are made, each of them empty at first.

use std::path::PathBuf;
use std::sync::Arc;

use coolant_backends::{Address, Options, SqlStore};

use crate::raw::Database;

/// A place for stores, and what was made there.
pub(crate) enum Place {
    /// Files in a folder, so many by now.
    Folder(PathBuf, usize),
    /// Databases on the server of that one.
    Server(String, Vec<Database>),
}

impl Place {
    pub(crate) fn in_folder(folder: PathBuf) -> Self {
        Self::Folder(folder, 0)
    }

    pub(crate) fn on_server(url: String) -> Self {
        Self::Server(url, Vec::new())
    }

    /// Another store, and where it is.
    pub(crate) async fn store(&mut self) -> (Arc<SqlStore>, Address) {
        let address = match self {
            Self::Folder(folder, made) => {
                *made += 1;
                Address::Sqlite(folder.join(format!("{made}.db")))
            }
            Self::Server(url, made) => {
                made.push(Database::create(url).await);
                Address::Postgres(made[made.len() - 1].url.clone())
            }
        };
        (SqlStore::open(&address, Options::default()).await.unwrap(), address)
    }

    /// Takes away what was made. Files go with their folder.
    pub(crate) async fn clear(self) {
        if let Self::Server(_, made) = self {
            for database in made {
                database.drop_it().await;
            }
        }
    }
}

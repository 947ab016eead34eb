//! What pods usually request of cards, for plugin deviceshare.

use super::Cluster;
use crate::amounts::CPU;
use crate::devices::Usual;
use crate::ids::ClassId;
use crate::plugins::deviceshare::Preference;
use crate::score::asked;

impl Cluster {
    /// Counts the requests of all pods again. The best nodes of pods with cards are ranked anew when it changed.
    pub(crate) fn refresh_usual(&mut self) {
        let deviceshare = self.policy.plugins.deviceshare.as_ref().map(|on| &on.rules);
        let Some(plugin) = deviceshare.filter(|plugin| plugin.preference == Preference::Usable) else {
            return;
        };
        let kinds = self.state.card_pods.iter().map(|(class, count)| {
            let class = self.state.class(*class);
            (plugin.asks(class).to_vec(), asked(class, CPU), *count)
        });
        let usual = Usual::new(kinds);
        if usual == self.state.usual {
            return;
        }
        self.state.usual = usual;
        let classes: Vec<ClassId> = self.state.card_pods.keys().copied().collect();
        for class in classes {
            if let Some(index) = self.indexes.get_mut(class as usize) {
                *index = None;
            }
        }
    }
}

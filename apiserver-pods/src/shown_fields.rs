//! The fields of a pod's spec, of volumes and of claims as messages show them: under capitals, in the order of the real
//! server's types, all of them also where nothing is set.
//!
//! Inputs: none; this is a table. Each type has its fields. A field is a text, or what the sign behind its name says:
//! `#` a number, `!` true or false, `%` a quantity, `?` a value that may be null, `~` a label selector, `:` another
//! type, `*` another type or null, `[` a list of another type, `@` the labels and annotations. `=` names the field as
//! clients write it, where that is not the same with a small first letter.

/// Each type with its fields.
pub(crate) const TYPES: &[(&str, &str)] = &[
    (
        "PodSpec",
        "Volumes[Volume InitContainers[Container Containers[Container EphemeralContainers[EphemeralContainer \
         RestartPolicy TerminationGracePeriodSeconds? ActiveDeadlineSeconds? DNSPolicy=dnsPolicy \
         NodeSelector? ServiceAccountName AutomountServiceAccountToken? NodeName \
         SecurityContext*PodSecurityContext ImagePullSecrets[LocalObjectReference Hostname Subdomain \
         SetHostnameAsFQDN? Affinity*Affinity SchedulerName Tolerations[Toleration HostAliases[HostAlias \
         PriorityClassName Priority? PreemptionPolicy? DNSConfig=dnsConfig*PodDNSConfig \
         ReadinessGates[PodReadinessGate RuntimeClassName? Overhead? EnableServiceLinks? \
         TopologySpreadConstraints[TopologySpreadConstraint OS=os*PodOS SchedulingGates[PodSchedulingGate \
         ResourceClaims[PodResourceClaim Resources*ResourceRequirements HostnameOverride? \
         SchedulingGroup*PodSchedulingGroup",
    ),
    (
        "EphemeralContainer",
        "Name Image Command? Args? WorkingDir Ports[ContainerPort EnvFrom[EnvFromSource Env[EnvVar \
         Resources:ResourceRequirements ResizePolicy[ContainerResizePolicy RestartPolicy? \
         RestartPolicyRules[ContainerRestartRule VolumeMounts[VolumeMount VolumeDevices[VolumeDevice \
         LivenessProbe*Probe ReadinessProbe*Probe StartupProbe*Probe Lifecycle*Lifecycle \
         TerminationMessagePath TerminationMessagePolicy ImagePullPolicy SecurityContext*SecurityContext \
         Stdin! StdinOnce! TTY=tty! TargetContainerName",
    ),
    (
        "Volume",
        "Name HostPath*HostPathVolumeSource EmptyDir*EmptyDirVolumeSource \
         GCEPersistentDisk=gcePersistentDisk*GCEPersistentDiskVolumeSource \
         AWSElasticBlockStore=awsElasticBlockStore*AWSElasticBlockStoreVolumeSource \
         GitRepo*GitRepoVolumeSource Secret*SecretVolumeSource NFS=nfs*NFSVolumeSource \
         ISCSI=iscsi*ISCSIVolumeSource Glusterfs*GlusterfsVolumeSource \
         PersistentVolumeClaim*PersistentVolumeClaimVolumeSource RBD=rbd*RBDVolumeSource \
         Quobyte*QuobyteVolumeSource FlexVolume*FlexVolumeSource Cinder*CinderVolumeSource \
         CephFS=cephfs*CephFSVolumeSource Flocker*FlockerVolumeSource DownwardAPI*DownwardAPIVolumeSource \
         FC=fc*FCVolumeSource AzureFile*AzureFileVolumeSource ConfigMap*ConfigMapVolumeSource \
         VsphereVolume*VsphereVirtualDiskVolumeSource AzureDisk*AzureDiskVolumeSource \
         PhotonPersistentDisk*PhotonPersistentDiskVolumeSource Projected*ProjectedVolumeSource \
         PortworxVolume*PortworxVolumeSource ScaleIO*ScaleIOVolumeSource \
         StorageOS=storageos*StorageOSVolumeSource CSI=csi*CSIVolumeSource Ephemeral*EphemeralVolumeSource \
         Image*ImageVolumeSource",
    ),
    (
        "Container",
        "Name Image Command? Args? WorkingDir Ports[ContainerPort EnvFrom[EnvFromSource Env[EnvVar \
         Resources:ResourceRequirements ResizePolicy[ContainerResizePolicy RestartPolicy? \
         RestartPolicyRules[ContainerRestartRule VolumeMounts[VolumeMount VolumeDevices[VolumeDevice \
         LivenessProbe*Probe ReadinessProbe*Probe StartupProbe*Probe Lifecycle*Lifecycle \
         TerminationMessagePath TerminationMessagePolicy ImagePullPolicy SecurityContext*SecurityContext \
         Stdin! StdinOnce! TTY=tty!",
    ),
    (
        "PodSecurityContext",
        "HostNetwork! HostPID! HostIPC! ShareProcessNamespace? HostUsers? \
         SELinuxOptions=seLinuxOptions*SELinuxOptions WindowsOptions*WindowsSecurityContextOptions RunAsUser? \
         RunAsGroup? RunAsNonRoot? SupplementalGroups? SupplementalGroupsPolicy? FSGroup=fsGroup? \
         FSGroupChangePolicy=fsGroupChangePolicy? Sysctls[Sysctl SeccompProfile*SeccompProfile \
         AppArmorProfile*AppArmorProfile SELinuxChangePolicy=seLinuxChangePolicy?",
    ),
    ("LocalObjectReference", "Name"),
    ("Affinity", "NodeAffinity*NodeAffinity PodAffinity*PodAffinity PodAntiAffinity*PodAntiAffinity"),
    ("Toleration", "Key Operator Value Effect TolerationSeconds?"),
    ("HostAlias", "IP=ip Hostnames?"),
    ("PodDNSConfig", "Nameservers? Searches? Options[PodDNSConfigOption"),
    ("PodReadinessGate", "ConditionType"),
    (
        "TopologySpreadConstraint",
        "MaxSkew# TopologyKey WhenUnsatisfiable LabelSelector~ MinDomains? NodeAffinityPolicy? \
         NodeTaintsPolicy? MatchLabelKeys?",
    ),
    ("PodOS", "Name"),
    ("PodSchedulingGate", "Name"),
    ("PodResourceClaim", "Name ResourceClaimName? ResourceClaimTemplateName?"),
    ("ResourceRequirements", "Limits? Requests? Claims[ResourceClaim"),
    ("PodSchedulingGroup", "PodGroupName?"),
    ("ContainerPort", "Name HostPort# ContainerPort# Protocol HostIP"),
    ("EnvFromSource", "Prefix ConfigMapRef*ConfigMapEnvSource SecretRef*SecretEnvSource"),
    ("EnvVar", "Name Value ValueFrom*EnvVarSource"),
    ("ContainerResizePolicy", "ResourceName RestartPolicy"),
    ("ContainerRestartRule", "Action ExitCodes*ContainerRestartRuleOnExitCodes"),
    ("VolumeMount", "Name ReadOnly! RecursiveReadOnly? MountPath SubPath MountPropagation? SubPathExpr"),
    ("VolumeDevice", "Name DevicePath"),
    (
        "Probe",
        "Exec*ExecAction HTTPGet=httpGet*HTTPGetAction TCPSocket=tcpSocket*TCPSocketAction \
         GRPC=grpc*GRPCAction InitialDelaySeconds# TimeoutSeconds# PeriodSeconds# SuccessThreshold# \
         FailureThreshold# TerminationGracePeriodSeconds?",
    ),
    ("Lifecycle", "PostStart*LifecycleHandler PreStop*LifecycleHandler StopSignal?"),
    (
        "SecurityContext",
        "Capabilities*Capabilities Privileged? SELinuxOptions=seLinuxOptions*SELinuxOptions \
         WindowsOptions*WindowsSecurityContextOptions RunAsUser? RunAsGroup? RunAsNonRoot? \
         ReadOnlyRootFilesystem? AllowPrivilegeEscalation? ProcMount? SeccompProfile*SeccompProfile \
         AppArmorProfile*AppArmorProfile",
    ),
    ("HostPathVolumeSource", "Path Type?"),
    ("EmptyDirVolumeSource", "Medium SizeLimit?"),
    ("GCEPersistentDiskVolumeSource", "PDName=pdName FSType=fsType Partition# ReadOnly!"),
    ("AWSElasticBlockStoreVolumeSource", "VolumeID FSType=fsType Partition# ReadOnly!"),
    ("GitRepoVolumeSource", "Repository Revision Directory"),
    ("SecretVolumeSource", "SecretName Items[KeyToPath DefaultMode? Optional?"),
    ("NFSVolumeSource", "Server Path ReadOnly!"),
    (
        "ISCSIVolumeSource",
        "TargetPortal IQN=iqn Lun# ISCSIInterface=iscsiInterface FSType=fsType ReadOnly! Portals? \
         DiscoveryCHAPAuth=chapAuthDiscovery! SessionCHAPAuth=chapAuthSession! SecretRef*LocalObjectReference \
         InitiatorName?",
    ),
    ("GlusterfsVolumeSource", "EndpointsName=endpoints Path ReadOnly!"),
    ("PersistentVolumeClaimVolumeSource", "ClaimName ReadOnly!"),
    (
        "RBDVolumeSource",
        "CephMonitors=monitors? RBDImage=image FSType=fsType RBDPool=pool RadosUser=user Keyring \
         SecretRef*LocalObjectReference ReadOnly!",
    ),
    ("QuobyteVolumeSource", "Registry Volume ReadOnly! User Group Tenant"),
    ("FlexVolumeSource", "Driver FSType=fsType SecretRef*LocalObjectReference ReadOnly! Options?"),
    ("CinderVolumeSource", "VolumeID FSType=fsType ReadOnly! SecretRef*LocalObjectReference"),
    ("CephFSVolumeSource", "Monitors? Path User SecretFile SecretRef*LocalObjectReference ReadOnly!"),
    ("FlockerVolumeSource", "DatasetName DatasetUUID"),
    ("DownwardAPIVolumeSource", "Items[DownwardAPIVolumeFile DefaultMode?"),
    ("FCVolumeSource", "TargetWWNs? Lun? FSType=fsType ReadOnly! WWIDs=wwids?"),
    ("AzureFileVolumeSource", "SecretName ShareName ReadOnly!"),
    ("ConfigMapVolumeSource", "Name Items[KeyToPath DefaultMode? Optional?"),
    ("VsphereVirtualDiskVolumeSource", "VolumePath FSType=fsType StoragePolicyName StoragePolicyID"),
    ("AzureDiskVolumeSource", "DiskName DataDiskURI=diskURI CachingMode? FSType=fsType? ReadOnly? Kind?"),
    ("PhotonPersistentDiskVolumeSource", "PdID FSType=fsType"),
    ("ProjectedVolumeSource", "Sources[VolumeProjection DefaultMode?"),
    ("PortworxVolumeSource", "VolumeID FSType=fsType ReadOnly!"),
    (
        "ScaleIOVolumeSource",
        "Gateway System SecretRef*LocalObjectReference SSLEnabled=sslEnabled! ProtectionDomain StoragePool \
         StorageMode VolumeName FSType=fsType ReadOnly!",
    ),
    (
        "StorageOSVolumeSource",
        "VolumeName VolumeNamespace FSType=fsType ReadOnly! SecretRef*LocalObjectReference",
    ),
    (
        "CSIVolumeSource",
        "Driver ReadOnly? FSType=fsType? VolumeAttributes? NodePublishSecretRef*LocalObjectReference",
    ),
    ("EphemeralVolumeSource", "VolumeClaimTemplate*PersistentVolumeClaimTemplate"),
    ("ImageVolumeSource", "Reference PullPolicy"),
    ("SELinuxOptions", "User Role Type Level"),
    (
        "WindowsSecurityContextOptions",
        "GMSACredentialSpecName=gmsaCredentialSpecName? GMSACredentialSpec=gmsaCredentialSpec? RunAsUserName? \
         HostProcess?",
    ),
    ("Sysctl", "Name Value"),
    ("SeccompProfile", "Type LocalhostProfile?"),
    ("AppArmorProfile", "Type LocalhostProfile?"),
    (
        "NodeAffinity",
        "RequiredDuringSchedulingIgnoredDuringExecution*NodeSelector \
         PreferredDuringSchedulingIgnoredDuringExecution[PreferredSchedulingTerm",
    ),
    (
        "PodAffinity",
        "RequiredDuringSchedulingIgnoredDuringExecution[PodAffinityTerm \
         PreferredDuringSchedulingIgnoredDuringExecution[WeightedPodAffinityTerm",
    ),
    (
        "PodAntiAffinity",
        "RequiredDuringSchedulingIgnoredDuringExecution[PodAffinityTerm \
         PreferredDuringSchedulingIgnoredDuringExecution[WeightedPodAffinityTerm",
    ),
    ("PodDNSConfigOption", "Name Value?"),
    ("ResourceClaim", "Name Request"),
    ("ConfigMapEnvSource", "Name Optional?"),
    ("SecretEnvSource", "Name Optional?"),
    (
        "EnvVarSource",
        "FieldRef*ObjectFieldSelector ResourceFieldRef*ResourceFieldSelector \
         ConfigMapKeyRef*ConfigMapKeySelector SecretKeyRef*SecretKeySelector FileKeyRef*FileKeySelector",
    ),
    ("ContainerRestartRuleOnExitCodes", "Operator Values?"),
    ("ExecAction", "Command?"),
    ("HTTPGetAction", "Path Port# Host Scheme HTTPHeaders=httpHeaders[HTTPHeader"),
    ("TCPSocketAction", "Port# Host"),
    ("GRPCAction", "Port# Service?"),
    (
        "LifecycleHandler",
        "Exec*ExecAction HTTPGet=httpGet*HTTPGetAction TCPSocket=tcpSocket*TCPSocketAction Sleep*SleepAction",
    ),
    ("Capabilities", "Add? Drop?"),
    ("KeyToPath", "Key Path Mode?"),
    (
        "DownwardAPIVolumeFile",
        "Path FieldRef*ObjectFieldSelector ResourceFieldRef*ResourceFieldSelector Mode?",
    ),
    (
        "VolumeProjection",
        "Secret*SecretProjection DownwardAPI*DownwardAPIProjection ConfigMap*ConfigMapProjection \
         ServiceAccountToken*ServiceAccountTokenProjection ClusterTrustBundle*ClusterTrustBundleProjection \
         PodCertificate*PodCertificateProjection",
    ),
    ("PersistentVolumeClaimTemplate", "@ Spec:PersistentVolumeClaimSpec"),
    ("NodeSelector", "NodeSelectorTerms[NodeSelectorTerm"),
    ("PreferredSchedulingTerm", "Weight# Preference:NodeSelectorTerm"),
    (
        "PodAffinityTerm",
        "LabelSelector~ Namespaces? TopologyKey NamespaceSelector~ MatchLabelKeys? MismatchLabelKeys?",
    ),
    ("WeightedPodAffinityTerm", "Weight# PodAffinityTerm:PodAffinityTerm"),
    ("ObjectFieldSelector", "APIVersion=apiVersion FieldPath"),
    ("ResourceFieldSelector", "ContainerName Resource Divisor%"),
    ("ConfigMapKeySelector", "Name Key Optional?"),
    ("SecretKeySelector", "Name Key Optional?"),
    ("FileKeySelector", "VolumeName Path Key Optional?"),
    ("HTTPHeader", "Name Value"),
    ("SleepAction", "Seconds#"),
    ("SecretProjection", "Name Items[KeyToPath Optional?"),
    ("DownwardAPIProjection", "Items[DownwardAPIVolumeFile"),
    ("ConfigMapProjection", "Name Items[KeyToPath Optional?"),
    ("ServiceAccountTokenProjection", "Audience ExpirationSeconds# Path"),
    ("ClusterTrustBundleProjection", "Name? SignerName? LabelSelector~ Optional? Path"),
    (
        "PodCertificateProjection",
        "SignerName KeyType MaxExpirationSeconds? CredentialBundlePath KeyPath CertificateChainPath \
         UserAnnotations?",
    ),
    (
        "PersistentVolumeClaimSpec",
        "AccessModes? Selector~ Resources:VolumeResourceRequirements VolumeName StorageClassName? VolumeMode? \
         DataSource*TypedLocalObjectReference DataSourceRef*TypedObjectReference VolumeAttributesClassName?",
    ),
    ("NodeSelectorTerm", "MatchExpressions[NodeSelectorRequirement MatchFields[NodeSelectorRequirement"),
    ("VolumeResourceRequirements", "Limits? Requests?"),
    ("TypedLocalObjectReference", "APIGroup=apiGroup? Kind Name"),
    ("TypedObjectReference", "APIGroup=apiGroup? Kind Name Namespace?"),
    ("NodeSelectorRequirement", "Key Operator Values?"),
    (
        "PersistentVolumeSource",
        "GCEPersistentDisk=gcePersistentDisk*GCEPersistentDiskVolumeSource \
         AWSElasticBlockStore=awsElasticBlockStore*AWSElasticBlockStoreVolumeSource HostPath*HostPathVolumeSource \
         Glusterfs*GlusterfsPersistentVolumeSource NFS=nfs*NFSVolumeSource RBD=rbd*RBDPersistentVolumeSource \
         Quobyte*QuobyteVolumeSource ISCSI=iscsi*ISCSIPersistentVolumeSource \
         FlexVolume*FlexPersistentVolumeSource Cinder*CinderPersistentVolumeSource \
         CephFS=cephfs*CephFSPersistentVolumeSource FC=fc*FCVolumeSource Flocker*FlockerVolumeSource \
         AzureFile*AzureFilePersistentVolumeSource VsphereVolume*VsphereVirtualDiskVolumeSource \
         AzureDisk*AzureDiskVolumeSource PhotonPersistentDisk*PhotonPersistentDiskVolumeSource \
         PortworxVolume*PortworxVolumeSource ScaleIO*ScaleIOPersistentVolumeSource Local*LocalVolumeSource \
         StorageOS=storageos*StorageOSPersistentVolumeSource CSI=csi*CSIPersistentVolumeSource",
    ),
    ("GlusterfsPersistentVolumeSource", "EndpointsName=endpoints Path ReadOnly! EndpointsNamespace?"),
    (
        "RBDPersistentVolumeSource",
        "CephMonitors=monitors? RBDImage=image FSType=fsType RBDPool=pool RadosUser=user Keyring \
         SecretRef*SecretReference ReadOnly!",
    ),
    (
        "ISCSIPersistentVolumeSource",
        "TargetPortal IQN=iqn Lun# ISCSIInterface=iscsiInterface FSType=fsType ReadOnly! Portals? \
         DiscoveryCHAPAuth=chapAuthDiscovery! SessionCHAPAuth=chapAuthSession! SecretRef*SecretReference \
         InitiatorName?",
    ),
    ("FlexPersistentVolumeSource", "Driver FSType=fsType SecretRef*SecretReference ReadOnly! Options?"),
    ("CinderPersistentVolumeSource", "VolumeID FSType=fsType ReadOnly! SecretRef*SecretReference"),
    ("CephFSPersistentVolumeSource", "Monitors? Path User SecretFile SecretRef*SecretReference ReadOnly!"),
    ("AzureFilePersistentVolumeSource", "SecretName ShareName ReadOnly! SecretNamespace?"),
    (
        "ScaleIOPersistentVolumeSource",
        "Gateway System SecretRef*SecretReference SSLEnabled=sslEnabled! ProtectionDomain StoragePool \
         StorageMode VolumeName FSType=fsType ReadOnly!",
    ),
    ("LocalVolumeSource", "Path FSType=fsType?"),
    (
        "StorageOSPersistentVolumeSource",
        "VolumeName VolumeNamespace FSType=fsType ReadOnly! SecretRef*ObjectReference",
    ),
    (
        "CSIPersistentVolumeSource",
        "Driver VolumeHandle ReadOnly! FSType=fsType VolumeAttributes? ControllerPublishSecretRef*SecretReference \
         NodeStageSecretRef*SecretReference NodePublishSecretRef*SecretReference \
         ControllerExpandSecretRef*SecretReference NodeExpandSecretRef*SecretReference",
    ),
    ("SecretReference", "Name Namespace"),
    ("ObjectReference", "Kind Namespace Name UID=uid APIVersion=apiVersion ResourceVersion FieldPath"),
    ("ResourceClaimTemplateSpec", "@ Spec:ResourceClaimSpec"),
    ("ResourceClaimSpec", "Devices:DeviceClaim"),
    ("DeviceClaim", "Requests[DeviceRequest Constraints[DeviceConstraint Config[DeviceClaimConfiguration"),
    ("DeviceRequest", "Name Exactly*ExactDeviceRequest FirstAvailable[DeviceSubRequest"),
    (
        "ExactDeviceRequest",
        "DeviceClassName Selectors[DeviceSelector AllocationMode Count# AdminAccess? \
         Tolerations[DeviceToleration Capacity*CapacityRequirements",
    ),
    (
        "DeviceSubRequest",
        "Name DeviceClassName Selectors[DeviceSelector AllocationMode Count# Tolerations[DeviceToleration \
         Capacity*CapacityRequirements",
    ),
    ("DeviceSelector", "CEL=cel*CELDeviceSelector"),
    ("CELDeviceSelector", "Expression"),
    ("DeviceToleration", "Key Operator Value Effect TolerationSeconds?"),
    ("CapacityRequirements", "Requests?"),
    ("DeviceConstraint", "Requests? MatchAttribute? DistinctAttribute?"),
    ("DeviceClaimConfiguration", "Requests? Opaque*OpaqueDeviceConfiguration"),
    ("DeviceAllocationConfiguration", "Source Requests? Opaque*OpaqueDeviceConfiguration"),
    ("OpaqueDeviceConfiguration", "Driver Parameters?"),
    ("AllocationResult", "Devices:DeviceAllocationResult NodeSelector*NodeSelector AllocationTimestamp?"),
    ("DeviceAllocationResult", "Results[DeviceRequestAllocationResult Config[DeviceAllocationConfiguration"),
    (
        "DeviceRequestAllocationResult",
        "Request Driver Pool Device AdminAccess? Tolerations[DeviceToleration BindingConditions? \
         BindingFailureConditions? ShareID? ConsumedCapacity?",
    ),
    (
        "DeviceAttribute",
        "IntValue=int? BoolValue=bool? StringValue=string? VersionValue=version? IntValues=ints? BoolValues=bools? \
         StringValues=strings? VersionValues=versions?",
    ),
];
